"""Ordering: how a page ends on which an order is given that may take a second factor."""

from collections.abc import Callable

from fastapi import Response
from fastapi.responses import RedirectResponse

from bot.web.noes import NOES, status_of
from bot.workflow import StepUpFirst

# Shows the page anew, with this status and what is to be said.
Anew = Callable[[int, str], Response]


def ordered(act: Callable[[], None], *, done: str, factor: str, anew: Anew) -> Response:
    """Give the order. done: where it leads then; factor: where the second factor is shown."""
    try:
        act()
    except StepUpFirst:
        return RedirectResponse(factor, 303)
    except NOES as no:
        return anew(status_of(no), str(no))
    return RedirectResponse(done, 303)
