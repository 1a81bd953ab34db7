"""Noes: what is refused to a visitor, and with which status a page says so."""

from collections.abc import Mapping

from bot.db.runs import ConcurrentUpdateError
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate, TooManyRequestsError
from bot.model.request_form import RequestSyntaxError
from bot.model.run import IllegalTransitionError
from bot.model.schedule import ScheduleError

# Of two that fit, the first holds.
_STATUS_BY_REFUSAL: Mapping[type[Exception], int] = {
    RequestSyntaxError: 422,
    ScheduleError: 422,
    TooManyRequestsError: 429,
    InvalidRequestError: 422,
    NotAllowed: 403,
    TooLate: 409,
    ConcurrentUpdateError: 409,
    IllegalTransitionError: 409,
}
# What to catch. Whoever can do more about one, such as step up first, catches that before.
REFUSALS = tuple(_STATUS_BY_REFUSAL)


def get_http_status(refusal: Exception) -> int:
    return next(status for kind, status in _STATUS_BY_REFUSAL.items() if isinstance(refusal, kind))
