"""Policy page: the permissions of everyone, or of one person, in plain words."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request, Response

from bot.policy.summary import render
from bot.policy.summary.current import summarise_current_policy
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.health_page import can_view_health
from bot.web.templating import render_page

router = APIRouter()

PersonPath = Annotated[str, Path(max_length=64)]


@router.get("/policy")
def show_policy(request: Request, deps: WebDeps, user: CurrentUser) -> Response:
    """Show the permissions of everyone, the owners of areas, and the freezes."""
    return _render_page(request, deps, user, person="")


@router.get("/policy/{person}")
def show_person_policy(
    request: Request, deps: WebDeps, user: CurrentUser, person: PersonPath
) -> Response:
    """Show the permissions of one person."""
    if user.policy.find_person(person) is None:
        raise HTTPException(404, "There is no person with this id in the policy.")
    return _render_page(request, deps, user, person=person)


def _render_page(request: Request, deps: WebDependencies, user: User, *, person: str) -> Response:
    with deps.database.reading(user.view_rights) as tx:
        now = tx.now
    summary = summarise_current_policy(user.policy, now, person=person)
    return render_page(
        request,
        "policy.html",
        summary=summary,
        description=render.describe_summary(summary),
        sections=render.SECTION_TITLES,
        links=True,
        name=user.get_person_name(person) if person else "",
        mine=person == user.id,
        health=can_view_health(user),
    )
