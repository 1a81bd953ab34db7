"""The history of every run, newest first, filtered and paged."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from bot.audit import formats
from bot.db import saved_views, search
from bot.db.database import Transaction
from bot.db.saved_views import NoSuchView, View
from bot.db.search import ListedRun, RunListing
from bot.model import times as model_times
from bot.model.run import Vote
from bot.web.auth import Visitor, visit
from bot.web.choices import list_choices
from bot.web.deps import WebParts
from bot.web.run_filter import NAMES, Wanted, canonical, wanted
from bot.web.templating import page
from bot.workflow.unknown_filters import describe_unknown_names

router = APIRouter()

_ON_A_PAGE = 40
# What else than a page the same runs are handed out as.
FORMS = ("csv", "json")
_COLUMNS = (
    "run",
    "state",
    "what",
    "hosts",
    "area",
    "asked_by",
    "approved_by",
    "asked",
    "started",
    "ended",
    "reason",
    "summary",
    "unwell",
)


@dataclass(frozen=True)
class _Seen:
    """What a page shows. older: the address of the next one, "" if this is the last."""

    wanted: Wanted
    found: RunListing
    older: str
    now: int


@router.get("/runs")
def history(request: Request) -> Response:
    """Show one page of runs. The address says everything, so it can be sent to somebody."""
    with visit(request) as (visitor, tx):
        named = _named(tx, request.query_params.get("view", ""))
        seen = _seen(request, tx, visitor)
    view = _view([*named, *seen.found.views], seen.wanted)
    before = seen.wanted.filter.before
    unheard_of = _unheard_of(request, visitor, seen)
    return page(
        request,
        "history.html",
        wanted=seen.wanted,
        unheard_of=unheard_of,
        choices=list_choices(visitor.policy),
        typed={name: seen.wanted[name] for name in NAMES},
        wrong=seen.wanted.problems,
        runs=seen.found.runs,
        votes=seen.found.votes,
        now=seen.now,
        older=seen.older,
        short=len(seen.found.runs) < _ON_A_PAGE,
        paged=before is not None,
        views=seen.found.views,
        view=view,
        query=canonical(seen.wanted.typed),
        log=seen.wanted.address().replace("/runs", "/log", 1),
        files={form: seen.wanted.address(before=before, form=f".{form}") for form in FORMS},
    )


@router.get("/runs.csv")
def as_csv(request: Request) -> Response:
    """Hand out what a page shows for a spreadsheet, in which no cell is a formula."""
    with visit(request) as (visitor, tx):
        seen = _seen(request, tx, visitor)
    rows = [formats.format_csv_row(_COLUMNS)]
    rows += [formats.format_csv_row(list(row.values())) for row in _rows(seen)]
    return _file("".join(rows), "text/csv", "runs.csv", seen)


@router.get("/runs.json")
def as_json(request: Request) -> Response:
    """Hand out what a page shows for programs; older: the address of the next, "" at the end."""
    with visit(request) as (visitor, tx):
        seen = _seen(request, tx, visitor)
    older = seen.older.replace("/runs?", "/runs.json?", 1)
    said = {
        "runs": _rows(seen),
        "older": older,
        "problems": dict(seen.wanted.problems),
        "unheard_of": _unheard_of(request, visitor, seen),
    }
    text = json.dumps(said, ensure_ascii=False, indent=1)
    return _file(text, "application/json", "runs.json", seen)


def _file(text: str, kind: str, name: str, seen: "_Seen") -> Response:
    """Return a file to be kept; of filters that do not fit, nothing but that."""
    status = 422 if seen.wanted.problems else 200
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, status, headers, f"{kind}; charset=utf-8")


def _seen(request: Request, tx: Transaction, visitor: Visitor) -> "_Seen":
    sought = wanted(request.query_params, now=tx.now)
    # Half a filter would mislead, so what does not fit finds nothing.
    asked = None if sought.problems else sought.filter
    found = search.list_run_page(tx, asked, most=_ON_A_PAGE, whose=visitor.id)
    return _Seen(sought, found, sought.address(before=found.older) if found.older else "", tx.now)


def _unheard_of(request: Request, visitor: Visitor, seen: "_Seen") -> dict[str, str]:
    """Return by filter what is said of a name that never was, where nothing was found."""
    if seen.found.runs or seen.older or seen.wanted.problems or not seen.wanted.typed:
        return {}
    parts: WebParts = request.app.state.parts
    with parts.database.reading(visitor.sight) as tx:
        return describe_unknown_names(tx, seen.wanted.filter, visitor.policy)


def _named(tx: Transaction, number: str) -> list[View]:
    """Return the view that an address names, if there is one."""
    if not (number.isascii() and number.isdecimal()) or len(number) >= 10:
        return []
    try:
        return [saved_views.get_view(tx, int(number))]
    except NoSuchView:
        return []


def _view(known: Sequence[View], sought: Wanted) -> View | None:
    """Return the view that is looked at: as long as its filters are those of the page."""
    query = canonical(sought.typed)
    return next((view for view in known if view.query == query), None)


def _rows(seen: "_Seen") -> list[dict[str, object]]:
    return [
        dict(zip(_COLUMNS, _cells(run, seen.found.votes.get(run.id, ())), strict=True))
        for run in seen.found.runs
    ]


def _cells(run: ListedRun, votes: Sequence[Vote]) -> list[object]:
    approved = " ".join(vote.person for vote in votes if vote.yes)
    times = [
        model_times.format_iso(at) if at else "" for at in (run.asked, run.started, run.ended)
    ]
    hosts = " ".join(run.hosts or (run.host,))
    what = [run.id, run.state.value, run.title, hosts, run.area, run.asked_by, approved]
    return [*what, *times, run.reason, run.summary, run.unwell]
