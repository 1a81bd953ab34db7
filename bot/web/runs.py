"""The history of every run, newest first, filtered and paged."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from bot.audit import formats
from bot.db import saved_views, search
from bot.db.database import Transaction
from bot.db.saved_views import NoSuchView, SavedView
from bot.db.search import ListedRun, RunListing
from bot.model import times as model_times
from bot.model.run import Decision
from bot.web.auth import Visitor, open_visit
from bot.web.choices import list_choices
from bot.web.deps import WebDependencies
from bot.web.run_filter import FILTER_NAMES, TypedFilter, format_filters, parse_filters
from bot.web.templating import render_page
from bot.workflow.unknown_filters import describe_unknown_names

router = APIRouter()

_PAGE_SIZE = 40
# What else than a page the same runs are handed out as.
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
class _HistoryPage:
    """What a page shows. older: the address of the next one, "" if this is the last."""

    typed_filter: TypedFilter
    listing: RunListing
    next_url: str
    now: int


@router.get("/runs")
def show_history(request: Request) -> Response:
    """Show one page of runs. The address says everything, so it can be sent to somebody."""
    with open_visit(request) as (visitor, tx):
        named = _find_named_view(tx, request.query_params.get("view", ""))
        seen = _read_history_page(request, tx, visitor)
    view = _find_shown_view([*named, *seen.listing.views], seen.typed_filter)
    before = seen.typed_filter.run_filter.before
    unknown_filters = _describe_unknown_filters(request, visitor, seen)
    return render_page(
        request,
        "history.html",
        wanted=seen.typed_filter,
        unknown_filters=unknown_filters,
        choices=list_choices(visitor.policy),
        typed={name: seen.typed_filter[name] for name in FILTER_NAMES},
        wrong=seen.typed_filter.problems,
        runs=seen.listing.runs,
        votes=seen.listing.votes,
        now=seen.now,
        older=seen.next_url,
        short=len(seen.listing.runs) < _PAGE_SIZE,
        paged=before is not None,
        views=seen.listing.views,
        view=view,
        query=format_filters(seen.typed_filter.typed),
        log=seen.typed_filter.build_url().replace("/runs", "/log", 1),
        files={
            form: seen.typed_filter.build_url(before=before, extension=f".{form}")
            for form in FILE_FORMATS
        },
    )


@router.get("/runs.csv")
def export_csv(request: Request) -> Response:
    """Hand out what a page shows for a spreadsheet, in which no cell is a formula."""
    with open_visit(request) as (visitor, tx):
        seen = _read_history_page(request, tx, visitor)
    rows = [formats.format_csv_row(_COLUMNS)]
    rows += [formats.format_csv_row(list(row.values())) for row in _build_rows(seen)]
    return _build_download("".join(rows), "text/csv", "runs.csv", seen)


@router.get("/runs.json")
def export_json(request: Request) -> Response:
    """Hand out what a page shows for programs; older: the address of the next, "" at the end."""
    with open_visit(request) as (visitor, tx):
        seen = _read_history_page(request, tx, visitor)
    older = seen.next_url.replace("/runs?", "/runs.json?", 1)
    said = {
        "runs": _build_rows(seen),
        "older": older,
        "problems": dict(seen.typed_filter.problems),
        "unknown_filters": _describe_unknown_filters(request, visitor, seen),
    }
    text = json.dumps(said, ensure_ascii=False, indent=1)
    return _build_download(text, "application/json", "runs.json", seen)


def _build_download(
    text: str, media_type: str, name: str, history_page: "_HistoryPage"
) -> Response:
    """Return a file to be kept; of filters that do not fit, nothing but that."""
    status = 422 if history_page.typed_filter.problems else 200
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, status, headers, f"{media_type}; charset=utf-8")


def _read_history_page(request: Request, tx: Transaction, visitor: Visitor) -> "_HistoryPage":
    sought = parse_filters(request.query_params, now=tx.now)
    # Half a filter would mislead, so what does not fit finds nothing.
    asked = None if sought.problems else sought.run_filter
    found = search.list_run_page(tx, asked, most=_PAGE_SIZE, whose=visitor.id)
    return _HistoryPage(
        sought, found, sought.build_url(before=found.older) if found.older else "", tx.now
    )


def _describe_unknown_filters(
    request: Request, visitor: Visitor, history_page: "_HistoryPage"
) -> dict[str, str]:
    """Return by filter what is said of a name that never was, where nothing was found."""
    if (
        history_page.listing.runs
        or history_page.next_url
        or history_page.typed_filter.problems
        or not history_page.typed_filter.typed
    ):
        return {}
    parts: WebDependencies = request.app.state.parts
    with parts.database.reading(visitor.view_rights) as tx:
        return describe_unknown_names(tx, history_page.typed_filter.run_filter, visitor.policy)


def _find_named_view(tx: Transaction, view_id: str) -> list[SavedView]:
    """Return the view that an address names, if there is one."""
    if not (view_id.isascii() and view_id.isdecimal()) or len(view_id) >= 10:
        return []
    try:
        return [saved_views.get_view(tx, int(view_id))]
    except NoSuchView:
        return []


def _find_shown_view(views: Sequence[SavedView], typed_filter: TypedFilter) -> SavedView | None:
    """Return the view that is looked at: as long as its filters are those of the page."""
    query = format_filters(typed_filter.typed)
    return next((view for view in views if view.query == query), None)


def _build_rows(history_page: "_HistoryPage") -> list[dict[str, object]]:
    return [
        dict(
            zip(
                _COLUMNS,
                _build_cells(run, history_page.listing.votes.get(run.id, ())),
                strict=True,
            )
        )
        for run in history_page.listing.runs
    ]


def _build_cells(run: ListedRun, decisions: Sequence[Decision]) -> list[object]:
    approved = " ".join(vote.person for vote in decisions if vote.approves)
    times = [
        model_times.format_iso(at) if at else ""
        for at in (run.requested_at, run.started_at, run.ended_at)
    ]
    hosts = " ".join(run.hosts or (run.host,))
    what = [run.id, run.state.value, run.title, hosts, run.area, run.requested_by, approved]
    return [*what, *times, run.reason, run.summary, run.needs_attention]
