"""The workflow: sees a run through, by the one path and the one gate."""

from bot.workflow.asking import Unfit
from bot.workflow.deciding import NotYours, TooLate
from bot.workflow.parts import Parts
from bot.workflow.workflow import Workflow

__all__ = ["NotYours", "Parts", "TooLate", "Unfit", "Workflow"]
