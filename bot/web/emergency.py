"""Emergency stop page: stop everything, and resume."""

from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import stops
from bot.model.errors import StepUpRequired
from bot.queries.second_factor import get_shown_factor
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page

# Renders the page again with an HTTP status and an alert.
RenderAgain = Callable[[int, str], Response]


def perform_order(
    action: Callable[[], None], *, done_url: str, step_up_url: str, render_again: RenderAgain
) -> Response:
    """Run *action* and redirect to *done_url*, or to *step_up_url* if it needs a second factor."""
    try:
        action()
    except StepUpRequired:
        return RedirectResponse(step_up_url, 303)
    except REFUSALS as no:
        return render_again(get_http_status(no), str(no))
    return RedirectResponse(done_url, 303)


router = APIRouter(prefix="/stop")


@router.get("")
def show_stop(request: Request, deps: WebDeps, user: CurrentUser, done: str = "") -> Response:
    return _render_page(request, deps, user, done=done)


@router.post("")
def stop_everything(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    """Stop every run and hold every request."""

    def act() -> None:
        why = form.get("reason", "")
        deps.service.stop_everything(person=user.id, reason=why, session=user.session_token)

    return _perform_and_redirect(request, deps, user, act, "stopped")


@router.post("/resume")
def resume_everything(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    def act() -> None:
        why = form.get("reason", "")
        deps.service.resume_everything(person=user.id, reason=why, session=user.session_token)

    return _perform_and_redirect(request, deps, user, act, "resumed")


def _perform_and_redirect(
    request: Request,
    deps: WebDependencies,
    user: User,
    action: Callable[[], None],
    outcome: str,
) -> Response:
    def render_again(status: int, alert: str) -> Response:
        return _render_page(request, deps, user, status=status, alert=alert)

    done_url = f"/stop?done={outcome}"
    return perform_order(
        action, done_url=done_url, step_up_url="/step-up?next=/stop", render_again=render_again
    )


def _render_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    *,
    status: int = 200,
    alert: str = "",
    done: str = "",
) -> Response:
    with deps.database.reading(user.view_rights) as tx:
        held = stops.get_stop_of_everything(tx)
        stepped_up = bool(
            get_shown_factor(tx, user.policy, person=user.id, session=user.session_token)
        )
    own = held is not None and held.person == user.id
    order = "resume" if held else "stop"
    ruling = user.policy.get_order_ruling(user.id, order, is_own=own)
    return render_page(
        request,
        "emergency_stop.html",
        status=status,
        alert=alert,
        done=done,
        held=held,
        own=own,
        allowed=ruling.allowed,
        factor_first=ruling.requires_second_factor and not stepped_up,
        able=user.policy.list_people_allowed(order, except_person=held.person if held else ""),
    )
