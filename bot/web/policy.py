"""The policy in plain words: what everybody may do, or what one person may."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request, Response

from bot.policy.summary import render
from bot.policy.summary.current import summarise_now
from bot.web.auth import Visiting, Visitor
from bot.web.deps import Here, WebParts
from bot.web.health_page import may_look
from bot.web.templating import page

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
    with parts.database.reading(visitor.sight) as tx:
        now = tx.now
    told = summarise_now(visitor.policy, now, person=person)
    return page(
        request,
        "policy.html",
        charter=told,
        counted=render.count_summary(told),
        sections=render.SECTIONS,
        links=True,
        name=visitor.name(person) if person else "",
        mine=person == visitor.id,
        condition=may_look(visitor),
    )
