"""The history of every run, newest first, filtered and paged."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from bot import archive, moment
from bot.run import Run, State, Vote
from bot.store import runs, search, views
from bot.store.database import Transaction
from bot.store.views import NoSuchView, View
from bot.web.pages import page
from bot.web.parts import Here, WebParts
from bot.web.visitor import Visiting, Visitor
from bot.web.wanted import GROUPS, Wanted, canonical, wanted
from runbooks import catalogue

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
)


@dataclass(frozen=True)
class Choices:
    """What the filters offer; other words may be typed too, for what has left since."""

    hosts: Sequence[str]
    areas: Mapping[str, str]
    people: Mapping[str, str]
    runbooks: Sequence[str]
    groups: Mapping[str, str]
    states: Sequence[State]


@dataclass(frozen=True)
class _Seen:
    """What a page shows. older: the address of the next one, "" if this is the last."""

    wanted: Wanted
    runs: Sequence[Run]
    votes: Mapping[int, Sequence[Vote]]
    older: str
    now: int
    views: Sequence[View] = ()
    view: View | None = None


@router.get("/runs")
def history(request: Request, parts: Here, visitor: Visiting) -> Response:
    """Show one page of runs. The address says everything, so it can be sent to somebody."""
    seen = _seen(request, parts, person=visitor.id)
    before = seen.wanted.filter.before
    return page(
        request,
        "history.html",
        wanted=seen.wanted,
        choices=_choices(visitor),
        runs=seen.runs,
        votes=seen.votes,
        now=seen.now,
        older=seen.older,
        short=len(seen.runs) < _ON_A_PAGE,
        paged=before is not None,
        views=seen.views,
        view=seen.view,
        query=canonical(seen.wanted.typed),
        log=seen.wanted.address().replace("/runs", "/log", 1),
        files={form: seen.wanted.address(before=before, form=f".{form}") for form in FORMS},
    )


@router.get("/runs.csv")
def as_csv(request: Request, parts: Here, visitor: Visiting) -> Response:  # noqa: ARG001 - whoever is signed in may read
    """Hand out what a page shows for a spreadsheet, in which no cell is a formula."""
    seen = _seen(request, parts)
    rows = [archive.csv_line(_COLUMNS)]
    rows += [archive.csv_line(list(row.values())) for row in _rows(seen)]
    return _file("".join(rows), "text/csv", "runs.csv", seen)


@router.get("/runs.json")
def as_json(request: Request, parts: Here, visitor: Visiting) -> Response:  # noqa: ARG001 - whoever is signed in may read
    """Hand out what a page shows for programs; older: the address of the next, "" at the end."""
    seen = _seen(request, parts)
    older = seen.older.replace("/runs?", "/runs.json?", 1)
    said = {"runs": _rows(seen), "older": older, "problems": dict(seen.wanted.problems)}
    text = json.dumps(said, ensure_ascii=False, indent=1)
    return _file(text, "application/json", "runs.json", seen)


def _file(text: str, kind: str, name: str, seen: "_Seen") -> Response:
    """Return a file to be kept; of filters that do not fit, nothing but that."""
    status = 422 if seen.wanted.problems else 200
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, status, headers, f"{kind}; charset=utf-8")


def _seen(request: Request, parts: WebParts, *, person: str = "") -> "_Seen":
    with parts.database.reading() as tx:
        sought = wanted(request.query_params, now=tx.now)
        # Half a filter would mislead, so what does not fit finds nothing.
        found = search.Page([], None)
        if not sought.problems:
            found = search.page(tx, sought.filter, most=_ON_A_PAGE)
        votes = runs.votes_on(tx, [run.id for run in found.runs])
        older = sought.address(before=found.older) if found.older else ""
        kept = views.of(tx, person) if person else []
        view = _view(tx, request.query_params.get("view", ""), kept, sought)
        return _Seen(sought, found.runs, votes, older, tx.now, kept, view)


def _view(tx: Transaction, number: str, mine: Sequence[View], sought: Wanted) -> View | None:
    """Return the view that is looked at: as long as its filters are those of the page."""
    known = list(mine)
    if number.isascii() and number.isdecimal() and len(number) < 10:
        with suppress(NoSuchView):
            known.insert(0, views.get(tx, int(number)))
    query = canonical(sought.typed)
    return next((view for view in known if view.query == query), None)


def _rows(seen: "_Seen") -> list[dict[str, object]]:
    return [
        dict(zip(_COLUMNS, _cells(run, seen.votes.get(run.id, ())), strict=True))
        for run in seen.runs
    ]


def _cells(run: Run, votes: Sequence[Vote]) -> list[object]:
    approved = " ".join(vote.person for vote in votes if vote.yes)
    times = [moment.iso(at) if at else "" for at in (run.asked, run.started, run.ended)]
    hosts = " ".join(run.hosts or (run.host,))
    what = [run.id, run.state.value, run.title, hosts, run.area, run.asked_by, approved]
    return [*what, *times, run.reason, run.summary]


def _choices(visitor: Visitor) -> Choices:
    people = visitor.policy.household.people.values()
    areas = visitor.policy.household.areas.values()
    return Choices(
        hosts=sorted(host.name for host in visitor.policy.inventory),
        areas={area.name: area.title for area in sorted(areas, key=lambda one: one.title)},
        people={person.id: person.name for person in sorted(people, key=lambda one: one.name)},
        runbooks=list(catalogue()),
        groups={name: title for name, (title, _) in GROUPS.items()},
        states=list(State),
    )
