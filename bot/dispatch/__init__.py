"""Where a run executes: here in a thread, or behind the same port on a worker elsewhere."""

from bot.dispatch.in_process import InProcess
from bot.dispatch.port import Dispatch

__all__ = ["Dispatch", "InProcess"]
