"""The policy in plain words: what everybody may do, or what one person may."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request, Response

from bot.charter import Charter, charter, drawing
from bot.charter.drafting import frosts
from bot.leaflet import leaflets
from bot.policy import Policy
from bot.web.condition_page import may_look
from bot.web.pages import page
from bot.web.parts import Here, WebParts
from bot.web.visitor import Visiting, Visitor

router = APIRouter()

Person = Annotated[str, Path(max_length=64)]


@router.get("/policy")
def policy(request: Request, parts: Here, visitor: Visiting) -> Response:
    """Show what everybody may do, who owns what, and when changes wait."""
    return _page(request, parts, visitor, person="")


@router.get("/policy/{person}")
def person(request: Request, parts: Here, visitor: Visiting, person: Person) -> Response:
    """Show what one person may do."""
    if visitor.policy.person(person) is None:
        raise HTTPException(404, "Nobody among the people of the policy has this id.")
    return _page(request, parts, visitor, person=person)


def _page(request: Request, parts: WebParts, visitor: Visitor, *, person: str) -> Response:
    with parts.database.reading() as tx:
        now = datetime.fromtimestamp(tx.now / 1_000_000, UTC)
    monday = now.date() - timedelta(days=now.weekday())
    told = replace(_told(visitor.policy, monday, person), freezes=frosts(visitor.policy, now))
    return page(
        request,
        "policy.html",
        charter=told,
        counted=drawing.counted(told),
        sections=drawing.SECTIONS,
        links=True,
        name=visitor.name(person) if person else "",
        mine=person == visitor.id,
        condition=may_look(visitor),
    )


@lru_cache(maxsize=64)
def _told(policy: Policy, monday: date, person: str) -> Charter:
    """Ask the rules once for as long as their answers stay the same."""
    week = datetime(monday.year, monday.month, monday.day, tzinfo=UTC)
    return charter(policy, leaflets(), now=week, person=person)
