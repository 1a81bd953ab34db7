"""Saved views: named filters of the runs page."""

from urllib.parse import parse_qsl

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from bot.db import saved_views
from bot.db.saved_views import SavedView
from bot.model.errors import InvalidRequestError
from bot.model.plain_text import join_to_one_line
from bot.model.text import format_sentence
from bot.web.errors import render_refusal
from bot.web.run_filter import format_filters
from bot.web.visit import IdPath, Visit
from connectors.command import InvisibleCharacterError

router = APIRouter(prefix="/views")


@router.get("/{number}")
def open_view(visit: Visit, number: IdPath) -> Response:
    """Redirect to the runs page with the filters of a view."""
    with visit.read_viewable() as tx:
        return RedirectResponse(_build_url(saved_views.get_view(tx, number)), 303)


@router.post("")
def store_view(visit: Visit) -> Response:
    """Save the filters of the page under a name."""
    query = format_filters(dict(parse_qsl(visit.form.get("query", ""), max_num_fields=20)))
    try:
        name = join_to_one_line(visit.form.get("name", ""))
    except InvisibleCharacterError as error:
        return render_refusal(visit.request, 422, f"The name {error}.")
    if not name or len(name) > saved_views.LONGEST_NAME:
        return render_refusal(
            visit.request, 422, f"Enter a name of at most {saved_views.LONGEST_NAME} characters."
        )
    try:
        with visit.deps.database.transaction() as tx:
            view = saved_views.store_view(tx, person=visit.person, name=name, query=query)
    except InvalidRequestError as error:
        return render_refusal(visit.request, 422, format_sentence(str(error)))
    return RedirectResponse(_build_url(view), 303)


@router.post("/{number}/delete")
def delete_view(visit: Visit, number: IdPath) -> Response:
    with visit.deps.database.transaction() as tx:
        is_deleted = saved_views.delete_view(tx, number, person=visit.person)
    if not is_deleted:
        return render_refusal(visit.request, 404, "You have no such view.")
    return RedirectResponse("/runs", 303)


def _build_url(view: SavedView) -> str:
    return f"/runs?{view.query}&view={view.id}" if view.query else f"/runs?view={view.id}"
