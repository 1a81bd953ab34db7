"""Delegations and standing grants: what the visitor has given and was given, and new ones."""

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import delegations, grants
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page
from bot.workflow import grant_rules, grant_words

router = APIRouter(prefix="/mandates")

RecordIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]
_DONE_NOTICES: Mapping[str, str] = {
    "delegated": "It holds from now on. Whatever they decide says in whose stead.",
    "granted": "It holds from now on. Each use is counted and logged.",
    "ended": "It has ended.",
}


@router.get("")
def show_delegations(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, done: str = ""
) -> Response:
    """Show what holds by and for the visitor."""
    return _render_page(request, parts, visitor, notice=_DONE_NOTICES.get(done, ""))


@router.post("/delegations")
def create_delegation(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    def act(now: int) -> None:
        area = f" for {form['area']}" if form.get("area") else ""
        typed = f"to {form.get('person', '')} until {form.get('until', '')}{area}"
        wanted = grant_words.parse_delegation(typed, now=now, zone=form.get("zone") or "UTC")
        parts.workflow.delegations_and_grants.create_delegation(
            delegator=visitor.id,
            delegate=wanted.delegate,
            ends_at=wanted.ends_at,
            area=wanted.area,
            reason=form.get("reason", ""),
            source="web",
        )

    return _perform_and_redirect(request, parts, visitor, act, "delegated", form)


@router.post("/grants")
def create_grant(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    def act(now: int) -> None:
        typed = (
            f"{form.get('person', '')} {form.get('what', '')} {form.get('per_hour', '')} an hour "
            f"until {form.get('until', '')}"
        )
        wanted = grant_words.parse_grant(typed, now=now, zone=form.get("zone") or "UTC")
        reason = form.get("reason", "")
        parts.workflow.delegations_and_grants.create_grant(
            wanted, granted_by=visitor.id, reason=reason, source="web"
        )

    return _perform_and_redirect(request, parts, visitor, act, "granted", form)


@router.post("/delegations/{number}/end")
def end_delegation(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RecordIdPath
) -> Response:
    def act(_now: int) -> None:
        parts.workflow.delegations_and_grants.end_delegation(
            number, person=visitor.id, source="web"
        )

    return _perform_and_redirect(request, parts, visitor, act, "ended", {})


@router.post("/grants/{number}/end")
def revoke_grant(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RecordIdPath
) -> Response:
    def act(_now: int) -> None:
        parts.workflow.delegations_and_grants.revoke_grant(number, person=visitor.id, source="web")

    return _perform_and_redirect(request, parts, visitor, act, "ended", {})


def _perform_and_redirect(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    action: Callable[[int], None],
    outcome: str,
    typed: Mapping[str, str],
) -> Response:
    """Do it and show the page anew, or show what was typed with the reason why not."""
    with parts.database.reading(visitor.view_rights) as tx:
        now = tx.now
    try:
        action(now)
    except REFUSALS as no:
        return _render_page(
            request, parts, visitor, status=get_http_status(no), alert=str(no), typed=typed
        )
    return RedirectResponse(f"/mandates?done={outcome}", 303)


def _render_page(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
    typed: Mapping[str, str] | None = None,
) -> Response:
    policy = visitor.policy
    owned = [area for area in policy.organisation.areas.values() if visitor.id in area.owners]
    with parts.database.reading(visitor.view_rights) as tx:
        found = [one for one in grants.list_grants_of(tx, visitor.id) if one.holds(tx.now)]
        return render_page(
            request,
            "mandates.html",
            status=status,
            alert=alert,
            notice=notice,
            typed=typed or {},
            owned=owned,
            people=sorted(
                (one for one in policy.organisation.people.values() if one.id != visitor.id),
                key=lambda one: one.name,
            ),
            delegations=[
                one
                for one in delegations.list_delegations_of(tx, visitor.id)
                if one.holds(area=one.area, now=tx.now)
            ],
            grants=[(one, grant_rules.count_uses_left(tx, one)) for one in found],
            now=tx.now,
        )
