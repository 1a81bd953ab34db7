"""The policy in plain words: what everybody may do, or what one person may."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request, Response

from bot.policy.summary import render
from bot.policy.summary.current import summarise_current_policy
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.deps import WebDependencies, WebDeps
from bot.web.health_page import can_view_health
from bot.web.templating import render_page

router = APIRouter()

PersonPath = Annotated[str, Path(max_length=64)]


@router.get("/policy")
def show_policy(request: Request, parts: WebDeps, visitor: CurrentVisitor) -> Response:
    """Show what everybody may do, who owns what, and when changes wait."""
    return _render_page(request, parts, visitor, person="")


@router.get("/policy/{person}")
def show_person_policy(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, person: PersonPath
) -> Response:
    """Show what one person may do."""
    if visitor.policy.find_person(person) is None:
        raise HTTPException(404, "Nobody among the people of the policy has this id.")
    return _render_page(request, parts, visitor, person=person)


def _render_page(
    request: Request, parts: WebDependencies, visitor: Visitor, *, person: str
) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        now = tx.now
    summary = summarise_current_policy(visitor.policy, now, person=person)
    return render_page(
        request,
        "policy.html",
        summary=summary,
        description=render.describe_summary(summary),
        sections=render.SECTION_TITLES,
        links=True,
        name=visitor.get_person_name(person) if person else "",
        mine=person == visitor.id,
        condition=can_view_health(visitor),
    )
