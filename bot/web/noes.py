"""Noes: what is refused to a visitor, and with which status a page says so."""

from collections.abc import Mapping

from bot.forms import NotUnderstood
from bot.run import IllegalMove
from bot.store.runs import Overtaken
from bot.timetable import BadTimetable
from bot.workflow import NotYours, TooLate, TooMuch, Unfit

# Of two that fit, the first holds.
_STATUS: Mapping[type[Exception], int] = {
    NotUnderstood: 422,
    BadTimetable: 422,
    TooMuch: 429,
    Unfit: 422,
    NotYours: 403,
    TooLate: 409,
    Overtaken: 409,
    IllegalMove: 409,
}
# What to catch. Whoever can do more about one, such as step up first, catches that before.
NOES = tuple(_STATUS)


def status_of(no: Exception) -> int:
    return next(status for kind, status in _STATUS.items() if isinstance(no, kind))
