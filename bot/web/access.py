"""Access page: delegations and standing grants that the user gave or received."""

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import delegations, grants
from bot.model import grant_words
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page

router = APIRouter(prefix="/access")

RecordIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]
_DONE_NOTICES: Mapping[str, str] = {
    "delegated": "The delegation is active. Each decision is recorded as made on your behalf.",
    "granted": "The standing grant is active. Each use is counted and logged.",
    "ended": "Ended.",
}


@router.get("")
def show_access(request: Request, deps: WebDeps, user: CurrentUser, done: str = "") -> Response:
    """Show the active delegations and standing grants of the user."""
    return _render_page(request, deps, user, notice=_DONE_NOTICES.get(done, ""))


@router.post("/delegations")
def create_delegation(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    def act(now: int) -> None:
        area = f" for {form['area']}" if form.get("area") else ""
        typed = f"to {form.get('person', '')} until {form.get('until', '')}{area}"
        delegation = grant_words.parse_delegation(typed, now=now, zone=form.get("zone") or "UTC")
        deps.workflow.delegations_and_grants.create_delegation(
            delegator=user.id,
            delegate=delegation.delegate,
            ends_at=delegation.ends_at,
            area=delegation.area,
            reason=form.get("reason", ""),
            source="web",
        )

    return _perform_and_redirect(request, deps, user, act, "delegated", form)


@router.post("/grants")
def create_grant(request: Request, deps: WebDeps, user: CurrentUser, form: FormValues) -> Response:
    def act(now: int) -> None:
        typed = (
            f"{form.get('person', '')} {form.get('what', '')} {form.get('per_hour', '')} an hour "
            f"until {form.get('until', '')}"
        )
        grant = grant_words.parse_grant(typed, now=now, zone=form.get("zone") or "UTC")
        reason = form.get("reason", "")
        deps.workflow.delegations_and_grants.create_grant(
            grant, granted_by=user.id, reason=reason, source="web"
        )

    return _perform_and_redirect(request, deps, user, act, "granted", form)


@router.post("/delegations/{number}/end")
def end_delegation(
    request: Request, deps: WebDeps, user: CurrentUser, number: RecordIdPath
) -> Response:
    def act(_now: int) -> None:
        deps.workflow.delegations_and_grants.end_delegation(number, person=user.id, source="web")

    return _perform_and_redirect(request, deps, user, act, "ended", {})


@router.post("/grants/{number}/end")
def revoke_grant(
    request: Request, deps: WebDeps, user: CurrentUser, number: RecordIdPath
) -> Response:
    def act(_now: int) -> None:
        deps.workflow.delegations_and_grants.revoke_grant(number, person=user.id, source="web")

    return _perform_and_redirect(request, deps, user, act, "ended", {})


def _perform_and_redirect(
    request: Request,
    deps: WebDependencies,
    user: User,
    action: Callable[[int], None],
    outcome: str,
    typed: Mapping[str, str],
) -> Response:
    """Run *action* and redirect to the page, or render the page again with the error."""
    with deps.database.reading(user.view_rights) as tx:
        now = tx.now
    try:
        action(now)
    except REFUSALS as error:
        return _render_page(
            request, deps, user, status=get_http_status(error), alert=str(error), typed=typed
        )
    return RedirectResponse(f"/access?done={outcome}", 303)


def _render_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
    typed: Mapping[str, str] | None = None,
) -> Response:
    policy = user.policy
    owned = [area for area in policy.organisation.areas.values() if user.id in area.owners]
    with deps.database.reading(user.view_rights) as tx:
        active_grants = [one for one in grants.list_grants_of(tx, user.id) if one.holds(tx.now)]
        return render_page(
            request,
            "access.html",
            status=status,
            alert=alert,
            notice=notice,
            typed=typed or {},
            owned=owned,
            people=sorted(
                (one for one in policy.organisation.people.values() if one.id != user.id),
                key=lambda one: one.name,
            ),
            delegations=[
                one
                for one in delegations.list_delegations_of(tx, user.id)
                if one.holds(area=one.area, now=tx.now)
            ],
            grants=[(one, grants.count_uses_left(tx, one)) for one in active_grants],
            now=tx.now,
        )
