"""The brake: everything is stopped here, and let go on."""

from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import stops
from bot.web.auth import Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.refusals import NOES, status_of
from bot.web.templating import page
from bot.workflow.approvals import StepUpRequired
from bot.workflow.second_factor import get_shown_factor

# Shows the page anew, with this status and what is to be said.
Anew = Callable[[int, str], Response]


def ordered(act: Callable[[], None], *, done: str, factor: str, anew: Anew) -> Response:
    """Give the order. done: where it leads then; factor: where the second factor is shown."""
    try:
        act()
    except StepUpRequired:
        return RedirectResponse(factor, 303)
    except NOES as no:
        return anew(status_of(no), str(no))
    return RedirectResponse(done, 303)


router = APIRouter(prefix="/stop")


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting, done: str = "") -> Response:
    return _page(request, parts, visitor, done=done)


@router.post("")
def stop(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    """Send nothing more to any host."""

    def act() -> None:
        why = form.get("reason", "")
        parts.workflow.stop_all(person=visitor.id, why=why, session=visitor.session)

    return _done(request, parts, visitor, act, "stopped")


@router.post("/resume")
def resume(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    def act() -> None:
        why = form.get("reason", "")
        parts.workflow.resume(person=visitor.id, why=why, session=visitor.session)

    return _done(request, parts, visitor, act, "resumed")


def _done(
    request: Request, parts: WebParts, visitor: Visitor, act: Callable[[], None], word: str
) -> Response:
    def anew(status: int, alert: str) -> Response:
        return _page(request, parts, visitor, status=status, alert=alert)

    done = f"/stop?done={word}"
    return ordered(act, done=done, factor="/step-up?next=/stop", anew=anew)


def _page(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    *,
    status: int = 200,
    alert: str = "",
    done: str = "",
) -> Response:
    with parts.database.reading(visitor.sight) as tx:
        held = stops.get_stop_of_everything(tx)
        stepped_up = bool(
            get_shown_factor(tx, visitor.policy, person=visitor.id, session=visitor.session)
        )
    own = held is not None and held.person == visitor.id
    order = "resume" if held else "stop"
    ruling = visitor.policy.may_order(visitor.id, order, own=own)
    return page(
        request,
        "brake.html",
        status=status,
        alert=alert,
        done=done,
        held=held,
        own=own,
        allowed=ruling.allowed,
        factor_first=ruling.step_up and not stepped_up,
        able=visitor.policy.able_to(order, besides=held.person if held else ""),
    )
