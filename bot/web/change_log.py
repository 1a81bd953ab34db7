"""Change log page: entries with filters, exports, and verification."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from bot.audit import entry_proof, verification
from bot.audit.change_log import Entry
from bot.audit.verification import Verification
from bot.db import search, view_conditions
from bot.db.database import Transaction
from bot.model import times
from bot.model.text import format_sentence
from bot.queries import log_formats, log_search
from bot.queries.run_timeline import format_kind, get_entry_facts
from bot.queries.unknown_filters import describe_unknown_log_names
from bot.web.auth import CurrentUser, User, open_visit
from bot.web.deps import WebDeps
from bot.web.errors import render_refusal
from bot.web.histogram import Histogram, build_histogram, is_histogram_wanted
from bot.web.run_filter import (
    FILTER_NAMES,
    TypedFilter,
    build_list_url,
    list_choices,
    parse_filters,
)
from bot.web.runs import FILE_FORMATS, build_download
from bot.web.templating import render_page
from bot.web.visit import IdPath, Visit
from connectors.visible_text import InvisibleCharacterError, refuse_invisible

router = APIRouter()

_PAGE_SIZE = 50
_COLUMNS = ("seq", "at", "kind", "run", "person", "host", "hash", "facts")
# Filters of the runs of the entries, rather than of the entries.
_RUN_FILTERS = ("area", "runbook", "state", "search")

BeforeQuery = Annotated[int | None, Query(ge=1, le=9_007_199_254_740_991)]


@dataclass(frozen=True)
class _LogPage:
    """One page of entries."""

    typed: Mapping[str, str]
    """The filters that are not empty."""
    problems: Mapping[str, str]
    """Problems of invalid filters, by name."""
    entry_filter: log_search.EntryFilter | None
    """None if a filter is invalid."""
    entries: Sequence[Entry]
    next_before: int | None
    """`before` of the next page; None on the last page."""
    head: tuple[int, str]
    """Number of the latest entry, and the root over all."""
    kinds: Sequence[str]

    def build_url(self, *, before: int | None = None, extension: str = "") -> str:
        return build_list_url(f"/changelog{extension}", self.typed, before)

    def build_next_url(self, *, extension: str = "") -> str:
        """Return the address of the next page; "" on the last."""
        older = self.next_before
        return self.build_url(before=older, extension=extension) if older else ""


@router.get("/changelog")
def show_log(request: Request, before: BeforeQuery = None) -> Response:
    return _render_page(request, before=before)


@router.get("/changelog.csv")
def export_csv(request: Request, before: BeforeQuery = None) -> Response:
    """Export a page as CSV; no cell is read as a formula by spreadsheets."""
    with open_visit(request) as (_, tx):
        log_page = _read_log_page(request, tx, before)
    lines = [log_formats.format_csv_row(_COLUMNS)]
    for row in map(_entry_to_row, log_page.entries):
        cells = {**row, "facts": json.dumps(row["facts"], ensure_ascii=False)}
        lines.append(log_formats.format_csv_row(list(cells.values())))
    return build_download("".join(lines), "log.csv", has_problems=bool(log_page.problems))


@router.get("/changelog.json")
def export_json(request: Request, before: BeforeQuery = None) -> Response:
    """Export a page as JSON. `older` is the address of the next page, "" on the last."""
    with open_visit(request) as (user, tx):
        log_page = _read_log_page(request, tx, before)
        unknown_filters = _describe_unknown_filters(tx, user, log_page)
    document = {
        "entries": [*map(_entry_to_row, log_page.entries)],
        "older": log_page.build_next_url(extension=".json"),
        "problems": log_page.problems,
        "unknown_filters": unknown_filters,
    }
    text = json.dumps(document, ensure_ascii=False, indent=1)
    return build_download(text, "log.json", has_problems=bool(log_page.problems))


@router.get("/changelog/entries/{number}/proof")
def export_proof(visit: Visit, number: IdPath) -> Response:
    """Download the proof of one entry, which other tools verify."""
    with visit.read_viewable() as tx:
        proof = entry_proof.build_proof(tx, number)
    name = f"entry-{number}.{entry_proof.FILE_ENDING}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(proof, headers=headers, media_type="text/plain; charset=utf-8")


@router.post("/changelog/verify")
def verify_log(request: Request, deps: WebDeps, user: CurrentUser) -> Response:
    """Verify the whole log. A POST, so that only the button starts this work."""
    try:
        with deps.database.reading(user.view_rights) as tx:
            view_conditions.require_everything(tx, "Verifying the whole change log")
        result = verification.verify_log_once(deps.database)
    except view_conditions.NotEverything as error:
        return render_refusal(request, 403, str(error))
    except verification.VerificationInProgress as error:
        return render_refusal(request, 409, format_sentence(str(error)))
    return _render_page(request, verification_result=result)


def _render_page(
    request: Request, *, before: int | None = None, verification_result: Verification | None = None
) -> Response:
    with open_visit(request) as (user, tx):
        log_page = _read_log_page(request, tx, before)
        histogram = _build_histogram(request, tx, log_page)
        unknown_filters = _describe_unknown_filters(tx, user, log_page)
    return render_page(
        request,
        "change_log.html",
        histogram=histogram,
        log_page=log_page,
        unknown_filters=unknown_filters,
        choices=list_choices(user.policy),
        kinds={kind: format_kind(kind) for kind in log_page.kinds},
        typed={name: log_page.typed.get(name, "") for name in (*FILTER_NAMES, "kind")},
        invalid=log_page.problems,
        entries=log_page.entries,
        head=log_page.head,
        verification=verification_result,
        older=log_page.build_next_url(),
        newest=log_page.build_url(),
        query=urlencode(log_page.typed),
        files={
            form: log_page.build_url(before=before, extension=f".{form}") for form in FILE_FORMATS
        },
        paged=before is not None,
        searched_runs=log_search.MAX_RUNS
        if any(name in log_page.typed for name in _RUN_FILTERS)
        else 0,
    )


def _build_histogram(request: Request, tx: Transaction, log_page: _LogPage) -> Histogram | None:
    found = log_page.entry_filter
    if found is None or not is_histogram_wanted(request):
        return None
    times = log_search.find_entry_times(tx, replace(found, before=None))
    return build_histogram(
        request, tx, times, until=found.until, noun="event", typed=log_page.typed
    )


def _read_log_page(request: Request, tx: Transaction, before: int | None) -> _LogPage:
    filters = parse_filters(request.query_params, now=tx.now)
    kind = request.query_params.get("kind", "").strip()[:40]
    typed = {**filters.typed, **({"kind": kind} if kind else {})}
    problems = dict(filters.problems) | _find_text_problems(kind)
    # An invalid filter matches nothing: ignoring it would show misleading results.
    entry_filter = None if problems else _build_entry_filter(filters, kind, before)
    found = log_search.get_log_page(tx, entry_filter, limit=_PAGE_SIZE + 1)
    entries = found.entries[:_PAGE_SIZE]
    older = entries[-1].seq if len(found.entries) > len(entries) else None
    return _LogPage(typed, problems, entry_filter, entries, older, found.head, found.kinds)


def _describe_unknown_filters(tx: Transaction, user: User, log_page: _LogPage) -> dict[str, str]:
    """Return warnings about names that do not exist, by filter, if no entries match."""
    if log_page.entries or log_page.entry_filter is None or not log_page.typed:
        return {}
    return describe_unknown_log_names(tx, log_page.entry_filter, user.policy)


def _find_text_problems(kind: str) -> dict[str, str]:
    try:
        refuse_invisible(kind)
    except InvisibleCharacterError as error:
        return {"kind": str(error)}
    return {}


def _build_entry_filter(
    typed_filter: TypedFilter, kind: str, before: int | None
) -> log_search.EntryFilter:
    run_filter = typed_filter.run_filter
    filter_of_runs = None
    if any(name in typed_filter.typed for name in _RUN_FILTERS):
        filter_of_runs = search.RunFilter(
            area=run_filter.area,
            runbook=run_filter.runbook,
            states=run_filter.states,
            text=run_filter.text,
        )
    return log_search.EntryFilter(
        host=run_filter.host or "",
        person=run_filter.person or "",
        kind=kind,
        since=run_filter.since,
        until=run_filter.until,
        run_filter=filter_of_runs,
        before=before,
    )


def _entry_to_row(entry: Entry) -> dict[str, object]:
    facts = get_entry_facts(entry)
    cells = (
        entry.seq,
        times.format_iso(entry.at),
        entry.kind,
        entry.run,
        entry.person,
        entry.host,
    )
    return dict(zip(_COLUMNS, (*cells, entry.hash, facts), strict=True))
