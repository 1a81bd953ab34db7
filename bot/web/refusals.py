"""Noes: what is refused to a visitor, and with which status a page says so."""

from collections.abc import Mapping

from bot.db.runs import Overtaken
from bot.model.request_form import NotUnderstood
from bot.model.run import IllegalMove
from bot.model.schedule import ScheduleError
from bot.workflow.approvals import NotAllowed, TooLate
from bot.workflow.requests import InvalidRequest, TooManyRequests

# Of two that fit, the first holds.
_STATUS: Mapping[type[Exception], int] = {
    NotUnderstood: 422,
    ScheduleError: 422,
    TooManyRequests: 429,
    InvalidRequest: 422,
    NotAllowed: 403,
    TooLate: 409,
    Overtaken: 409,
    IllegalMove: 409,
}
# What to catch. Whoever can do more about one, such as step up first, catches that before.
NOES = tuple(_STATUS)


def status_of(no: Exception) -> int:
    return next(status for kind, status in _STATUS.items() if isinstance(no, kind))
