"""Refusals that pages show to users, with their HTTP status."""

from collections.abc import Callable, Mapping

from fastapi import Response
from fastapi.responses import RedirectResponse

from bot.db.runs import ConcurrentUpdateError
from bot.model.errors import (
    InvalidRequestError,
    NotAllowed,
    StepUpRequired,
    TooLate,
    TooManyRequestsError,
)
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


def perform_and_redirect(
    action: Callable[[], str | None], render: Callable[..., Response], *, page: str, outcome: str
) -> Response:
    """Run *action* and redirect to the page, or render it again with the error.

    Args:
        action: Raises StepUpRequired or one of REFUSALS if it is refused. Returns the address to
            redirect to instead of the page, or None.
        render: Renders the page from `status` and `alert`.
        page: The path of the page.
        outcome: Key of the page's notice.
    """
    try:
        target = action()
    except StepUpRequired:
        return RedirectResponse(f"/step-up?next={page}", 303)
    except REFUSALS as error:
        return render(status=get_http_status(error), alert=str(error))
    return RedirectResponse(target or f"{page}?done={outcome}", 303)
