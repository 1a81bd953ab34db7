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
from bot.web.auth import CurrentVisitor, Visitor, open_visit
from bot.web.choices import list_choices
from bot.web.deps import WebDependencies, WebDeps
from bot.web.errors import render_refusal
from bot.web.run_filter import FILTER_NAMES, TypedFilter, parse_filters
from bot.web.templating import render_page
from bot.workflow.run_timeline import get_entry_facts
from bot.workflow.unknown_filters import describe_unknown_log_names
from connectors.command import InvisibleCharacterError, refuse_invisible

router = APIRouter()

_PAGE_SIZE = 50
_COLUMNS = ("seq", "at", "kind", "run", "person", "host", "hash", "facts")
# What the runs must be, rather than the entries.
_RUN_FILTERS = ("area", "runbook", "state", "text")

BeforeQuery = Annotated[int | None, Query(ge=1, le=9_007_199_254_740_991)]


@dataclass(frozen=True)
class _LogPage:
    """What a page shows. typed: the filters that are not empty. older: `before` of the next.

    asked: what was looked for; None where the filters do not fit.
    """

    typed: Mapping[str, str]
    problems: Mapping[str, str]
    entry_filter: query.EntryFilter | None
    entries: Sequence[Entry]
    next_before: int | None
    head: tuple[int, str]
    kinds: Sequence[str]

    def build_url(self, *, before: int | None = None, extension: str = "") -> str:
        values = dict(self.typed) | ({"before": str(before)} if before else {})
        return f"/log{extension}?{urlencode(values)}" if values else f"/log{extension}"


@router.get("/log")
def show_log(request: Request, before: BeforeQuery = None) -> Response:
    return _render_page(request, before=before)


@router.get("/log.csv")
def export_csv(request: Request, before: BeforeQuery = None) -> Response:
    """Hand out what a page shows for a spreadsheet, in which no cell is a formula."""
    with open_visit(request) as (_, tx):
        seen = _read_log_page(request, tx, before)
    lines = [formats.format_csv_row(_COLUMNS)]
    for row in map(_entry_to_row, seen.entries):
        cells = {**row, "facts": json.dumps(row["facts"], ensure_ascii=False)}
        lines.append(formats.format_csv_row(list(cells.values())))
    return _build_download("".join(lines), "text/csv", "log.csv", seen)


@router.get("/log.json")
def export_json(request: Request, before: BeforeQuery = None) -> Response:
    """Hand out what a page shows for programs; older: the address of the next, "" at the end."""
    with open_visit(request) as (visitor, tx):
        seen = _read_log_page(request, tx, before)
    older = seen.build_url(before=seen.next_before, extension=".json") if seen.next_before else ""
    said = {
        "entries": [*map(_entry_to_row, seen.entries)],
        "older": older,
        "problems": seen.problems,
        "unknown_filters": _describe_unknown_filters(request, visitor, seen),
    }
    text = json.dumps(said, ensure_ascii=False, indent=1)
    return _build_download(text, "application/json", "log.json", seen)


@router.post("/log/verify")
def verify_log(request: Request, parts: WebDeps, visitor: CurrentVisitor) -> Response:
    """Recompute the whole chain. A POST, so that nothing but a button does that work."""
    try:
        with parts.database.reading(visitor.view_rights) as tx:
            view_conditions.require_everything(tx, "Verifying the whole change log")
        verdict = verification.verify_log_once(parts.database)
    except view_conditions.NotEverything as no:
        return render_refusal(request, 403, str(no))
    except verification.VerificationInProgress as no:
        return render_refusal(request, 409, f"{str(no).capitalize()}.")
    return _render_page(request, verification_result=verdict)


def _render_page(
    request: Request, *, before: int | None = None, verification_result: Verification | None = None
) -> Response:
    with open_visit(request) as (visitor, tx):
        seen = _read_log_page(request, tx, before)
    return render_page(
        request,
        "log.html",
        seen=seen,
        unknown_filters=_describe_unknown_filters(request, visitor, seen),
        choices=list_choices(visitor.policy),
        kinds={kind: kind for kind in seen.kinds},
        typed={name: seen.typed.get(name, "") for name in (*FILTER_NAMES, "kind")},
        wrong=seen.problems,
        entries=seen.entries,
        head=seen.head,
        verdict=verification_result,
        older=seen.build_url(before=seen.next_before) if seen.next_before else "",
        newest=seen.build_url(),
        files={
            form: seen.build_url(before=before, extension=f".{form}") for form in ("csv", "json")
        },
        paged=before is not None,
        newest_runs=query.MAX_RUNS if any(name in seen.typed for name in _RUN_FILTERS) else 0,
    )


def _read_log_page(request: Request, tx: Transaction, before: int | None) -> _LogPage:
    sought = parse_filters(request.query_params, now=tx.now)
    kind = request.query_params.get("kind", "").strip()[:40]
    typed = {**sought.typed, **({"kind": kind} if kind else {})}
    problems = dict(sought.problems) | _find_text_problems(kind)
    # What does not fit finds nothing.
    asked = None if problems else _build_entry_filter(sought, kind, before)
    leaf = query.get_log_page(tx, asked, limit=_PAGE_SIZE + 1)
    shown = leaf.entries[:_PAGE_SIZE]
    older = shown[-1].seq if len(leaf.entries) > len(shown) else None
    return _LogPage(typed, problems, asked, shown, older, leaf.head, leaf.kinds)


def _describe_unknown_filters(
    request: Request, visitor: Visitor, log_page: _LogPage
) -> dict[str, str]:
    """Return by filter what is said of a name that never was, where nothing was found."""
    if log_page.entries or log_page.entry_filter is None or not log_page.typed:
        return {}
    parts: WebDependencies = request.app.state.parts
    with parts.database.reading(visitor.view_rights) as tx:
        return describe_unknown_log_names(tx, log_page.entry_filter, visitor.policy)


def _find_text_problems(kind: str) -> dict[str, str]:
    try:
        refuse_invisible(kind)
    except InvisibleCharacterError as unclean:
        return {"kind": str(unclean)}
    return {}


def _build_entry_filter(
    typed_filter: TypedFilter, kind: str, before: int | None
) -> query.EntryFilter:
    asked = typed_filter.run_filter
    of_runs = None
    if any(name in typed_filter.typed for name in _RUN_FILTERS):
        of_runs = search.RunFilter(
            area=asked.area, runbook=asked.runbook, states=asked.states, text=asked.text
        )
    return query.EntryFilter(
        host=asked.host or "",
        person=asked.person or "",
        kind=kind,
        since=asked.since,
        until=asked.until,
        run_filter=of_runs,
        before=before,
    )


def _entry_to_row(entry: Entry) -> dict[str, object]:
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


def _build_download(text: str, media_type: str, name: str, log_page: _LogPage) -> Response:
    status = 422 if log_page.problems else 200
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, status, headers, f"{media_type}; charset=utf-8")
