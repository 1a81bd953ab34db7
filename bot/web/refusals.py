"""Refusals that pages show to users, with their HTTP status."""

from collections.abc import Mapping

from bot.db.runs import ConcurrentUpdateError
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate, TooManyRequestsError
from bot.model.request_form import RequestSyntaxError
from bot.model.run import IllegalTransitionError
from bot.model.schedule import ScheduleError

# The first match counts.
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
# The exceptions to catch. Handle StepUpRequired and the like before them.
REFUSALS = tuple(_STATUS_BY_REFUSAL)


def get_http_status(refusal: Exception) -> int:
    """Return the HTTP status for an exception of REFUSALS."""
    return next(status for kind, status in _STATUS_BY_REFUSAL.items() if isinstance(refusal, kind))
