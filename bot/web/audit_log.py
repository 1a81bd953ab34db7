"""The change log as it stands, entry by entry, filtered and paged, and its verification."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from bot.audit import formats, query, verification
from bot.audit.change_log import Entry
from bot.audit.verification import Verification
from bot.db import search, view_conditions
from bot.db.database import Transaction
from bot.model import times
from bot.web.auth import Visiting, Visitor, visit
from bot.web.choices import list_choices
from bot.web.deps import Here, WebParts
from bot.web.errors import refusal
from bot.web.run_filter import NAMES, Wanted, wanted
from bot.web.templating import page
from bot.workflow.run_timeline import get_entry_facts
from bot.workflow.unknown_filters import describe_unknown_log_names
from connectors.command import InvisibleCharacterError, refuse_invisible

router = APIRouter()

_ON_A_PAGE = 50
_COLUMNS = ("seq", "at", "kind", "run", "person", "host", "hash", "facts")
# What the runs must be, rather than the entries.
_OF_RUNS = ("area", "runbook", "state", "text")

Before = Annotated[int | None, Query(ge=1, le=9_007_199_254_740_991)]


@dataclass(frozen=True)
class _Seen:
    """What a page shows. typed: the filters that are not empty. older: `before` of the next.

    asked: what was looked for; None where the filters do not fit.
    """

    typed: Mapping[str, str]
    problems: Mapping[str, str]
    asked: query.EntryFilter | None
    entries: Sequence[Entry]
    older: int | None
    head: tuple[int, str]
    kinds: Sequence[str]

    def address(self, *, before: int | None = None, form: str = "") -> str:
        values = dict(self.typed) | ({"before": str(before)} if before else {})
        return f"/log{form}?{urlencode(values)}" if values else f"/log{form}"


@router.get("/log")
def log(request: Request, before: Before = None) -> Response:
    return _page(request, before=before)


@router.get("/log.csv")
def as_csv(request: Request, before: Before = None) -> Response:
    """Hand out what a page shows for a spreadsheet, in which no cell is a formula."""
    with visit(request) as (_, tx):
        seen = _seen(request, tx, before)
    lines = [formats.format_csv_row(_COLUMNS)]
    for row in map(_row, seen.entries):
        cells = {**row, "facts": json.dumps(row["facts"], ensure_ascii=False)}
        lines.append(formats.format_csv_row(list(cells.values())))
    return _file("".join(lines), "text/csv", "log.csv", seen)


@router.get("/log.json")
def as_json(request: Request, before: Before = None) -> Response:
    """Hand out what a page shows for programs; older: the address of the next, "" at the end."""
    with visit(request) as (visitor, tx):
        seen = _seen(request, tx, before)
    older = seen.address(before=seen.older, form=".json") if seen.older else ""
    said = {
        "entries": [*map(_row, seen.entries)],
        "older": older,
        "problems": seen.problems,
        "unheard_of": _unheard_of(request, visitor, seen),
    }
    text = json.dumps(said, ensure_ascii=False, indent=1)
    return _file(text, "application/json", "log.json", seen)


@router.post("/log/verify")
def verify(request: Request, parts: Here, visitor: Visiting) -> Response:
    """Recompute the whole chain. A POST, so that nothing but a button does that work."""
    try:
        with parts.database.reading(visitor.sight) as tx:
            view_conditions.require_everything(tx, "Verifying the whole change log")
        verdict = verification.verify_log_once(parts.database)
    except view_conditions.NotEverything as no:
        return refusal(request, 403, str(no))
    except verification.AlreadyVerifying as no:
        return refusal(request, 409, f"{str(no).capitalize()}.")
    return _page(request, verdict=verdict)


def _page(
    request: Request, *, before: int | None = None, verdict: Verification | None = None
) -> Response:
    with visit(request) as (visitor, tx):
        seen = _seen(request, tx, before)
    return page(
        request,
        "log.html",
        seen=seen,
        unheard_of=_unheard_of(request, visitor, seen),
        choices=list_choices(visitor.policy),
        kinds={kind: kind for kind in seen.kinds},
        typed={name: seen.typed.get(name, "") for name in (*NAMES, "kind")},
        wrong=seen.problems,
        entries=seen.entries,
        head=seen.head,
        verdict=verdict,
        older=seen.address(before=seen.older) if seen.older else "",
        newest=seen.address(),
        files={form: seen.address(before=before, form=f".{form}") for form in ("csv", "json")},
        paged=before is not None,
        newest_runs=query.NEWEST_RUNS if any(name in seen.typed for name in _OF_RUNS) else 0,
    )


def _seen(request: Request, tx: Transaction, before: int | None) -> _Seen:
    sought = wanted(request.query_params, now=tx.now)
    kind = request.query_params.get("kind", "").strip()[:40]
    typed = {**sought.typed, **({"kind": kind} if kind else {})}
    problems = dict(sought.problems) | _unclean(kind)
    # What does not fit finds nothing.
    asked = None if problems else _asked(sought, kind, before)
    leaf = query.get_log_page(tx, asked, most=_ON_A_PAGE + 1)
    shown = leaf.entries[:_ON_A_PAGE]
    older = shown[-1].seq if len(leaf.entries) > len(shown) else None
    return _Seen(typed, problems, asked, shown, older, leaf.head, leaf.kinds)


def _unheard_of(request: Request, visitor: Visitor, seen: _Seen) -> dict[str, str]:
    """Return by filter what is said of a name that never was, where nothing was found."""
    if seen.entries or seen.asked is None or not seen.typed:
        return {}
    parts: WebParts = request.app.state.parts
    with parts.database.reading(visitor.sight) as tx:
        return describe_unknown_log_names(tx, seen.asked, visitor.policy)


def _unclean(kind: str) -> dict[str, str]:
    try:
        refuse_invisible(kind)
    except InvisibleCharacterError as unclean:
        return {"kind": str(unclean)}
    return {}


def _asked(sought: Wanted, kind: str, before: int | None) -> query.EntryFilter:
    asked = sought.filter
    of_runs = None
    if any(name in sought.typed for name in _OF_RUNS):
        of_runs = search.RunFilter(
            area=asked.area, words=asked.words, states=asked.states, text=asked.text
        )
    return query.EntryFilter(
        host=asked.host or "",
        person=asked.person or "",
        kind=kind,
        since=asked.since,
        until=asked.until,
        runs=of_runs,
        before=before,
    )


def _row(entry: Entry) -> dict[str, object]:
    told = get_entry_facts(entry)
    cells = (
        entry.seq,
        times.format_iso(entry.at),
        entry.kind,
        entry.run,
        entry.person,
        entry.host,
    )
    return dict(zip(_COLUMNS, (*cells, entry.hash, told), strict=True))


def _file(text: str, kind: str, name: str, seen: _Seen) -> Response:
    status = 422 if seen.problems else 200
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, status, headers, f"{kind}; charset=utf-8")
