"""Drift pages: what changed outside Keyturn, what may have changed it, and the answers."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from bot.db import drift
from bot.model.drift import DRIFTED_STATES, DriftState
from bot.model.run import RequestOrigin
from bot.model.times import DEADLINE_EXAMPLES, parse_deadline
from bot.queries.drift import read_details
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import perform_and_redirect
from bot.web.templating import get_reader_zone, render_page

router = APIRouter(prefix="/drift")

KeyIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]
FilterQuery = Annotated[str, Query(max_length=100)]
_MAX_KEYS = 500
_DONE_NOTICES: Mapping[str, str] = {
    "read": "Keyturn reads the host within seconds, unless it has read it in the last minute.",
    "adopted": "Adopted. Keyturn watches this value from now on; nothing was sent to the host.",
    "expected": "Expected. Until then, another value is no drift.",
}


@router.get("")
def list_keys(
    request: Request, deps: WebDeps, user: CurrentUser, host: FilterQuery = "", state: str = ""
) -> Response:
    """Show the values that Keyturn watches, those that are not as set first."""
    wanted = DriftState(state) if state in set(DriftState) else None
    name = host.strip().lower()
    with deps.database.reading(user.view_rights) as tx:
        keys = drift.list_keys(tx, host=name, state=wanted, most=_MAX_KEYS)
    return render_page(
        request,
        "drift.html",
        keys=keys,
        states=[*DriftState],
        typed={"host": name, "state": wanted or ""},
        drifted=sum(key.state in DRIFTED_STATES for key in keys),
        is_cut=len(keys) == _MAX_KEYS,
    )


@router.get("/{number}")
def show_key(
    request: Request, deps: WebDeps, user: CurrentUser, number: KeyIdPath, done: str = ""
) -> Response:
    """Show one value: when it changed, what happened on its host then, and the answers."""
    return _render_key(request, deps, user, number, notice=_DONE_NOTICES.get(done, ""))


@router.post("/{number}/read")
def read_key(request: Request, deps: WebDeps, user: CurrentUser, number: KeyIdPath) -> Response:
    """Have the values of the host read now."""

    def act() -> None:
        with deps.database.reading(user.view_rights) as tx:
            host = drift.get_key(tx, number).host
        deps.service.drift.read_host_now(host, person=user.id)

    return _perform_and_redirect(request, deps, user, number, act, "read")


@router.post("/{number}/restore")
def restore_value(
    request: Request, deps: WebDeps, user: CurrentUser, number: KeyIdPath, form: FormValues
) -> Response:
    """Plan again what set the value, and redirect to its plan."""

    def act() -> str:
        run = deps.service.drift.restore_value(
            number,
            person=user.id,
            origin=RequestOrigin("web", user=user.id),
            reason=form.get("reason", ""),
            plan_only=True,
        )
        return f"/runs/{run.id}"

    return _perform_and_redirect(request, deps, user, number, act, "restored")


@router.post("/{number}/adopt")
def adopt_value(
    request: Request, deps: WebDeps, user: CurrentUser, number: KeyIdPath, form: FormValues
) -> Response:
    """Accept the value on the host."""

    def act() -> None:
        reason, session = form.get("reason", ""), user.session_token
        deps.service.drift.adopt_value(number, person=user.id, reason=reason, session=session)

    return _perform_and_redirect(request, deps, user, number, act, "adopted", form)


@router.post("/{number}/expect")
def expect_value(
    request: Request, deps: WebDeps, user: CurrentUser, number: KeyIdPath, form: FormValues
) -> Response:
    """Let the value vary until a time."""

    def act() -> None:
        with deps.database.reading(user.view_rights) as tx:
            now = tx.now
        until = parse_deadline(form.get("until", ""), now=now, zone=get_reader_zone(request))
        deps.service.drift.expect_value(
            number,
            person=user.id,
            until=until,
            value_range=form.get("range", "").strip(),
            reason=form.get("reason", ""),
            session=user.session_token,
        )

    return _perform_and_redirect(request, deps, user, number, act, "expected", form)


def _perform_and_redirect(
    request: Request,
    deps: WebDependencies,
    user: User,
    number: int,
    action: Callable[[], str | None],
    outcome: str,
    typed: Mapping[str, str] | None = None,
) -> Response:
    render = partial(_render_key, request, deps, user, number, typed=typed)
    return perform_and_redirect(action, render, page=f"/drift/{number}", outcome=outcome)


def _render_key(  # noqa: PLR0913 - keyword arguments for what is shown above the value
    request: Request,
    deps: WebDependencies,
    user: User,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
    typed: Mapping[str, str] | None = None,
) -> Response:
    with deps.database.reading(user.view_rights) as tx:
        details = read_details(tx, user.policy, number, person=user.id)
    return render_page(
        request,
        "drift_key.html",
        status=status,
        alert=alert[:1].upper() + alert[1:],
        notice=notice,
        typed=typed or {},
        details=details,
        key=details.key,
        is_drifted=details.key.state in DRIFTED_STATES,
        deadline_examples=DEADLINE_EXAMPLES,
    )
