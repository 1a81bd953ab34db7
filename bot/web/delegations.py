"""Delegations and standing grants: what the visitor has given and was given, and new ones."""

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import delegations, grants
from bot.web.auth import Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.refusals import NOES, status_of
from bot.web.templating import page
from bot.workflow import grant_rules, grant_words

router = APIRouter(prefix="/mandates")

Number = Annotated[int, Path(ge=1, le=2_147_483_647)]
_DONE: Mapping[str, str] = {
    "delegated": "It holds from now on. Whatever they decide says in whose stead.",
    "granted": "It holds from now on. Each use is counted and logged.",
    "ended": "It has ended.",
}


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting, done: str = "") -> Response:
    """Show what holds by and for the visitor."""
    return _page(request, parts, visitor, notice=_DONE.get(done, ""))


@router.post("/delegations")
def delegate(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    def act(now: int) -> None:
        area = f" for {form['area']}" if form.get("area") else ""
        typed = f"to {form.get('person', '')} until {form.get('until', '')}{area}"
        wanted = grant_words.parse_delegation(typed, now=now, zone=form.get("zone") or "UTC")
        parts.workflow.mandates.delegate(
            person=visitor.id,
            to=wanted.delegate,
            ends=wanted.ends,
            area=wanted.area,
            reason=form.get("reason", ""),
            door="web",
        )

    return _done(request, parts, visitor, act, "delegated", form)


@router.post("/grants")
def grant(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    def act(now: int) -> None:
        typed = (
            f"{form.get('person', '')} {form.get('what', '')} {form.get('an_hour', '')} an hour "
            f"until {form.get('until', '')}"
        )
        wanted = grant_words.parse_grant(typed, now=now, zone=form.get("zone") or "UTC")
        reason = form.get("reason", "")
        parts.workflow.mandates.grant(wanted, giver=visitor.id, reason=reason, door="web")

    return _done(request, parts, visitor, act, "granted", form)


@router.post("/delegations/{number}/end")
def end_delegation(request: Request, parts: Here, visitor: Visiting, number: Number) -> Response:
    def act(_now: int) -> None:
        parts.workflow.mandates.end_delegation(number, person=visitor.id, door="web")

    return _done(request, parts, visitor, act, "ended", {})


@router.post("/grants/{number}/end")
def end_grant(request: Request, parts: Here, visitor: Visiting, number: Number) -> Response:
    def act(_now: int) -> None:
        parts.workflow.mandates.end_grant(number, person=visitor.id, door="web")

    return _done(request, parts, visitor, act, "ended", {})


def _done(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    act: Callable[[int], None],
    word: str,
    typed: Mapping[str, str],
) -> Response:
    """Do it and show the page anew, or show what was typed with the reason why not."""
    with parts.database.reading(visitor.sight) as tx:
        now = tx.now
    try:
        act(now)
    except NOES as no:
        return _page(request, parts, visitor, status=status_of(no), alert=str(no), typed=typed)
    return RedirectResponse(f"/mandates?done={word}", 303)


def _page(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
    typed: Mapping[str, str] | None = None,
) -> Response:
    policy = visitor.policy
    owned = [area for area in policy.household.areas.values() if visitor.id in area.owners]
    with parts.database.reading(visitor.sight) as tx:
        found = [one for one in grants.list_grants_of(tx, visitor.id) if one.holds(tx.now)]
        return page(
            request,
            "mandates.html",
            status=status,
            alert=alert,
            notice=notice,
            typed=typed or {},
            owned=owned,
            people=sorted(
                (one for one in policy.household.people.values() if one.id != visitor.id),
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
