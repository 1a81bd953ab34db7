"""Views: the history's filters under a name: kept, opened by their link, and forgotten."""

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, HTTPException, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import saved_views
from bot.db.saved_views import NoSuchView, SavedView
from bot.model.plain_text import join_to_one_line
from bot.web.auth import CurrentVisitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDeps
from bot.web.errors import render_refusal
from bot.web.run_filter import format_filters
from connectors.command import InvisibleCharacterError

router = APIRouter(prefix="/views")

ViewIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]


@router.get("/{number}")
def open_view(parts: WebDeps, visitor: CurrentVisitor, number: ViewIdPath) -> Response:
    """Go to the history as somebody has kept it: the link for others."""
    try:
        with parts.database.reading(visitor.view_rights) as tx:
            view = saved_views.get_view(tx, number)
    except NoSuchView:
        raise HTTPException(404, "There is no such view: whose it was has forgotten it.") from None
    return RedirectResponse(_build_url(view), 303)


@router.post("")
def store_view(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    """Keep the filters that the page showed under a name."""
    query = format_filters(dict(parse_qsl(form.get("query", ""), max_num_fields=20)))
    try:
        name = join_to_one_line(form.get("name", ""))
    except InvisibleCharacterError as unclean:
        return render_refusal(request, 422, f"The name {unclean}.")
    if not name or len(name) > saved_views.LONGEST_NAME:
        return render_refusal(
            request, 422, f"Give it a name of {saved_views.LONGEST_NAME} characters at most."
        )
    with parts.database.transaction() as tx:
        mine = saved_views.list_views(tx, visitor.id)
        if len(mine) >= saved_views.MOST and name not in {view.name for view in mine}:
            words = f"You keep {saved_views.MOST} views already: forget one first."
            return render_refusal(request, 422, words)
        view = saved_views.store_view(tx, person=visitor.id, name=name, query=query)
    return RedirectResponse(_build_url(view), 303)


@router.post("/{number}/forget")
def delete_view(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: ViewIdPath
) -> Response:
    with parts.database.transaction() as tx:
        gone = saved_views.delete_view(tx, number, person=visitor.id)
    if not gone:
        return render_refusal(request, 404, "You keep no such view.")
    return RedirectResponse("/runs", 303)


def _build_url(view: SavedView) -> str:
    return f"/runs?{view.query}&view={view.id}" if view.query else f"/runs?view={view.id}"
