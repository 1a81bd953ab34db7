"""The brake: everything is stopped here, and let go on."""

from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import stops
from bot.model.errors import StepUpRequired
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page
from bot.workflow.second_factor import get_shown_factor

# Shows the page anew, with this status and what is to be said.
RenderAgain = Callable[[int, str], Response]


def perform_order(
    action: Callable[[], None], *, done_url: str, step_up_url: str, render_again: RenderAgain
) -> Response:
    """Give the order. done: where it leads then; factor: where the second factor is shown."""
    try:
        action()
    except StepUpRequired:
        return RedirectResponse(step_up_url, 303)
    except REFUSALS as no:
        return render_again(get_http_status(no), str(no))
    return RedirectResponse(done_url, 303)


router = APIRouter(prefix="/stop")


@router.get("")
def show_stop(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, done: str = ""
) -> Response:
    return _render_page(request, parts, visitor, done=done)


@router.post("")
def stop_everything(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    """Send nothing more to any host."""

    def act() -> None:
        why = form.get("reason", "")
        parts.workflow.stop_everything(
            person=visitor.id, reason=why, session=visitor.session_token
        )

    return _perform_and_redirect(request, parts, visitor, act, "stopped")


@router.post("/resume")
def resume_everything(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    def act() -> None:
        why = form.get("reason", "")
        parts.workflow.resume_everything(
            person=visitor.id, reason=why, session=visitor.session_token
        )

    return _perform_and_redirect(request, parts, visitor, act, "resumed")


def _perform_and_redirect(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    action: Callable[[], None],
    outcome: str,
) -> Response:
    def anew(status: int, alert: str) -> Response:
        return _render_page(request, parts, visitor, status=status, alert=alert)

    done = f"/stop?done={outcome}"
    return perform_order(
        action, done_url=done, step_up_url="/step-up?next=/stop", render_again=anew
    )


def _render_page(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    *,
    status: int = 200,
    alert: str = "",
    done: str = "",
) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        held = stops.get_stop_of_everything(tx)
        stepped_up = bool(
            get_shown_factor(tx, visitor.policy, person=visitor.id, session=visitor.session_token)
        )
    own = held is not None and held.person == visitor.id
    order = "resume" if held else "stop"
    ruling = visitor.policy.get_order_ruling(visitor.id, order, is_own=own)
    return render_page(
        request,
        "brake.html",
        status=status,
        alert=alert,
        done=done,
        held=held,
        own=own,
        allowed=ruling.allowed,
        factor_first=ruling.requires_second_factor and not stepped_up,
        able=visitor.policy.list_people_allowed(order, except_person=held.person if held else ""),
    )
