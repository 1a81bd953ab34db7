"""The web door: pages on which people read, decide and look things up again."""

from bot.web.app import build
from bot.web.deps import WebParts

__all__ = ["WebParts", "build"]
