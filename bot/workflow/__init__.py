"""The workflow: sees a run through, by the one path and the one gate."""

from bot.workflow.asking import NoSuchPerson, TooMuch, Unfit
from bot.workflow.deciding import NotYours, StepUpFirst, TooLate
from bot.workflow.parts import Parts
from bot.workflow.workflow import Workflow

__all__ = [
    "NoSuchPerson",
    "NotYours",
    "Parts",
    "StepUpFirst",
    "TooLate",
    "TooMuch",
    "Unfit",
    "Workflow",
]
