"""Emergency stop page: stop everything, and resume."""

from functools import partial

from fastapi import APIRouter, Request, Response

from bot.db import stops
from bot.queries.second_factor import get_shown_factor
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import perform_and_redirect
from bot.web.templating import render_page

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

    render = partial(_render_page, request, deps, user)
    return perform_and_redirect(act, render, page="/stop", outcome="stopped")


@router.post("/resume")
def resume_everything(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    def act() -> None:
        why = form.get("reason", "")
        deps.service.resume_everything(person=user.id, reason=why, session=user.session_token)

    render = partial(_render_page, request, deps, user)
    return perform_and_redirect(act, render, page="/stop", outcome="resumed")


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
        policy = user.policy.without_people(stops.list_banned_people(tx))
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
        able=policy.list_people_allowed(order, except_person=held.person if held else ""),
    )
