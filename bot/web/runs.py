"""Runs page: all runs, newest first, with filters and exports."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import saved_views, search
from bot.db.database import Transaction
from bot.db.saved_views import NoSuchView, SavedView
from bot.db.search import ListedRun, RunListing
from bot.model import times as model_times
from bot.model.errors import InvalidRequestError
from bot.model.plain_text import join_to_one_line
from bot.model.run import Decision
from bot.model.run_states import describe_outcome
from bot.model.text import format_sentence
from bot.queries import log_formats
from bot.queries.unknown_filters import describe_unknown_names
from bot.web.auth import User, open_visit
from bot.web.errors import render_refusal
from bot.web.histogram import Histogram, build_histogram, is_histogram_wanted
from bot.web.run_filter import (
    FILTER_NAMES,
    TypedFilter,
    format_filters,
    list_choices,
    parse_filters,
)
from bot.web.templating import render_page
from bot.web.visit import IdPath, Visit
from connectors.visible_text import InvisibleCharacterError

router = APIRouter()

_PAGE_SIZE = 40
# Formats of the export.
FILE_FORMATS = ("csv", "json")
_COLUMNS = (
    "run",
    "state",
    "what",
    "hosts",
    "area",
    "requested_by",
    "approved_by",
    "requested",
    "started",
    "ended",
    "reason",
    "summary",
    "needs_attention",
)


@dataclass(frozen=True)
class _RunsPage:
    """One page of runs."""

    typed_filter: TypedFilter
    listing: RunListing
    next_url: str
    """Address of the next page; "" on the last."""
    now: int


@router.get("/runs")
def show_runs(request: Request) -> Response:
    """Show one page of runs. The address holds all filters, so that it can be shared."""
    with open_visit(request) as (user, tx):
        named = _find_named_view(tx, request.query_params.get("view", ""))
        page = _read_runs_page(request, tx, user)
        histogram = _build_histogram(request, tx, page.typed_filter)
        unknown_filters = _describe_unknown_filters(tx, user, page)
    view = _find_shown_view([*named, *page.listing.views], page.typed_filter)
    before = page.typed_filter.run_filter.before
    return render_page(
        request,
        "runs.html",
        filters=page.typed_filter,
        unknown_filters=unknown_filters,
        choices=list_choices(user.policy),
        typed={name: page.typed_filter[name] for name in FILTER_NAMES},
        invalid=page.typed_filter.problems,
        runs=page.listing.runs,
        votes=page.listing.decisions,
        parent_states=page.listing.parent_states,
        now=page.now,
        older=page.next_url,
        short=len(page.listing.runs) < _PAGE_SIZE,
        paged=before is not None,
        views=page.listing.views,
        view=view,
        query=format_filters(page.typed_filter.typed),
        histogram=histogram,
        log=page.typed_filter.build_url().replace("/runs", "/changelog", 1),
        files={
            form: page.typed_filter.build_url(before=before, extension=f".{form}")
            for form in FILE_FORMATS
        },
    )


@router.get("/runs.csv")
def export_csv(request: Request) -> Response:
    """Export a page as CSV; no cell is read as a formula by spreadsheets."""
    with open_visit(request) as (user, tx):
        page = _read_runs_page(request, tx, user)
    rows = [_COLUMNS, *(list(row.values()) for row in _build_rows(page))]
    text = "".join(map(log_formats.format_csv_row, rows))
    return build_download(text, "runs.csv", has_problems=bool(page.typed_filter.problems))


@router.get("/runs.json")
def export_json(request: Request) -> Response:
    """Export a page as JSON. `older` is the address of the next page, "" on the last."""
    with open_visit(request) as (user, tx):
        page = _read_runs_page(request, tx, user)
        unknown_filters = _describe_unknown_filters(tx, user, page)
    document = {
        "runs": _build_rows(page),
        "older": page.next_url.replace("/runs?", "/runs.json?", 1),
        "problems": dict(page.typed_filter.problems),
        "unknown_filters": unknown_filters,
    }
    text = json.dumps(document, ensure_ascii=False, indent=1)
    return build_download(text, "runs.json", has_problems=bool(page.typed_filter.problems))


def _build_histogram(
    request: Request, tx: Transaction, typed_filter: TypedFilter
) -> Histogram | None:
    if is_histogram_wanted(request) and not typed_filter.problems:
        times = search.find_request_times(tx, typed_filter.run_filter)
        until = typed_filter.run_filter.until
        return build_histogram(
            request, tx, times, until=until, noun="run", typed=typed_filter.typed
        )
    return None


def build_download(text: str, name: str, *, has_problems: bool) -> Response:
    """Return a CSV or JSON file as a download; status 422 if a filter is invalid."""
    media_type = "text/csv" if name.endswith(".csv") else "application/json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, 422 if has_problems else 200, headers, f"{media_type}; charset=utf-8")


def _read_runs_page(request: Request, tx: Transaction, user: User) -> _RunsPage:
    filters = parse_filters(request.query_params, now=tx.now)
    # An invalid filter matches nothing: ignoring it would show misleading results.
    run_filter = None if filters.problems else filters.run_filter
    listing = search.list_run_page(tx, run_filter, most=_PAGE_SIZE, whose=user.id)
    return _RunsPage(
        filters, listing, filters.build_url(before=listing.older) if listing.older else "", tx.now
    )


def _describe_unknown_filters(tx: Transaction, user: User, page: _RunsPage) -> dict[str, str]:
    """Return warnings about names that do not exist, by filter, if no runs match."""
    if (
        page.listing.runs
        or page.next_url
        or page.typed_filter.problems
        or not page.typed_filter.typed
    ):
        return {}
    return describe_unknown_names(tx, page.typed_filter.run_filter, user.policy)


def _find_named_view(tx: Transaction, view_id: str) -> list[SavedView]:
    """Return the view with this id, or an empty list."""
    if not (view_id.isascii() and view_id.isdecimal()) or len(view_id) >= 10:
        return []
    try:
        return [saved_views.get_view(tx, int(view_id))]
    except NoSuchView:
        return []


def _find_shown_view(views: Sequence[SavedView], typed_filter: TypedFilter) -> SavedView | None:
    """Return the view whose filters are exactly those of the page, if any."""
    query = format_filters(typed_filter.typed)
    return next((view for view in views if view.query == query), None)


def _build_rows(page: _RunsPage) -> list[dict[str, object]]:
    return [
        dict(
            zip(
                _COLUMNS,
                _build_cells(run, page.listing.decisions.get(run.id, ())),
                strict=True,
            )
        )
        for run in page.listing.runs
    ]


def _build_cells(run: ListedRun, decisions: Sequence[Decision]) -> list[object]:
    approvers = " ".join(vote.person for vote in decisions if vote.approves)
    times = [
        model_times.format_iso(at) if at else ""
        for at in (run.requested_at, run.started_at, run.ended_at)
    ]
    hosts = " ".join(run.hosts or (run.host,))
    columns = [run.id, run.state.value, run.title, hosts, run.area, run.requested_by, approvers]
    return [*columns, *times, run.reason, describe_outcome(run), run.needs_attention]


@router.get("/views/{number}")
def open_view(visit: Visit, number: IdPath) -> Response:
    """Redirect to the runs page with the filters of a view."""
    with visit.read_viewable() as tx:
        return RedirectResponse(_build_url(saved_views.get_view(tx, number)), 303)


@router.post("/views")
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


@router.post("/views/{number}/delete")
def delete_view(visit: Visit, number: IdPath) -> Response:
    with visit.deps.database.transaction() as tx:
        is_deleted = saved_views.delete_view(tx, number, person=visit.person)
    if not is_deleted:
        return render_refusal(visit.request, 404, "You have no such view.")
    return RedirectResponse("/runs", 303)


def _build_url(view: SavedView) -> str:
    return f"/runs?{view.query}&view={view.id}" if view.query else f"/runs?view={view.id}"
