"""Search the change log by its entries and by the runs that they are about."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db import search, sql_text, tables, view_conditions
from bot.db.database import Transaction
from bot.db.search import RunFilter
from bot.db.time_counts import CountedTimes
from bot.model import host_patterns

_COLUMNS = ", ".join(column.name for column in tables.ENTRY_MEMBERS)
# How many of the newest entries are searched for the hosts of a pattern first.
_MAX_SCANNED_ENTRIES = 2_000
# How many of the newest matching runs a search by run covers.
MAX_RUNS = 200
_MAX_COUNTED_RUNS = 2_000
_MAX_NEAREST_ENTRIES = 5_000
# So many entries of a kind take a millisecond to look through.
_FREQUENT = 1_000
_HOST_PATTERN = "host LIKE :like ESCAPE '\\'"
# Takes one index look-up for each kind.
_KINDS_STATEMENT = sql_text.each_value_sql("entry", "kind")


@dataclass(frozen=True)
class EntryFilter:
    """Which entries to find; "" and None mean any."""

    host: str = ""
    """A name or a pattern such as `web*`."""
    person: str = ""
    kind: str = ""
    since: int | None = None
    """Microseconds since 1970, UTC."""
    until: int | None = None
    """Microseconds since 1970, UTC."""
    run_filter: RunFilter | None = field(default=None)
    """Only entries about matching runs; None also for entries that are about no run."""
    before: int | None = None
    """Only entries with a lower number: the start of an older page."""


@dataclass(frozen=True)
class _EntryQuery:
    """conditions: SQL conditions on an entry. parameters: the values that they name."""

    conditions: Sequence[str]
    parameters: dict[str, object]

    def narrow(self, condition: str, **parameters: object) -> "_EntryQuery":
        return _EntryQuery([*self.conditions, condition], {**self.parameters, **parameters})


@dataclass(frozen=True)
class LogPage:
    """A page of the log."""

    entries: Sequence[Entry]
    """The newest first."""
    head: tuple[int, str]
    """Number and hash of the newest entry of the whole log."""
    kinds: Sequence[str]
    """The kinds of entries in the log, sorted; if only a part may be viewed, those of the page."""


def get_log_page(tx: Transaction, entry_filter: EntryFilter | None, *, limit: int) -> LogPage:
    """Return a page of the log.

    entry_filter: None for a page without entries.
    """
    found = find_newest_entries(tx, entry_filter, limit=limit) if entry_filter else []
    if view_conditions.can_view_everything(tx):
        kinds = [kind for (kind,) in sql_text.fetch_rows(tx, _KINDS_STATEMENT, {})]
    else:
        kinds = sorted({entry.kind for entry in found})
    return LogPage(found, change_log.get_head(tx), kinds)


def find_newest_entries(tx: Transaction, entry_filter: EntryFilter, *, limit: int) -> list[Entry]:
    """Return the newest matching entries, the newest first."""
    if not _is_for_several_hosts(entry_filter):
        query = _build_single_query(tx, entry_filter, limit)
        return _read_entries(tx, query, limit) if query else []
    query = _build_query(tx, entry_filter)
    found = _find_among_newest(tx, entry_filter, query, limit)
    if len(found) >= limit:
        return found
    found.clear()
    for host in search.list_known_hosts(tx, "entry", entry_filter.host):
        found += _read_entries(tx, query.narrow("host = :host", host=host), limit)
    return sorted(found, key=lambda entry: -entry.seq)[:limit]


def find_nearest_entries(tx: Transaction, at: int, span: int) -> tuple[list[Entry], int]:
    """Return the entries nearest to a time, the newest first, and the span around it they cover.

    at, span: in microseconds, as `Entry.at`. The span is smaller if more entries are in it than
    are read.
    """
    query, limit = _build_query(tx, EntryFilter()), _MAX_NEAREST_ENTRIES
    before = query.narrow("at BETWEEN :begin AND :at", begin=at - span, at=at)
    after = query.narrow("at > :at AND at <= :end", at=at, end=at + span)
    found = _read_entries(tx, before, limit + 1, order="at DESC, seq DESC")
    found += _read_entries(tx, after, limit + 1, order="at, seq")
    reach = span
    if len(found) > limit:
        found = sorted(found, key=lambda entry: abs(entry.at - at))[:limit]
        reach = abs(found[-1].at - at)
    return sorted(found, key=lambda entry: (entry.at, entry.seq), reverse=True), reach


def find_entry_times(tx: Transaction, entry_filter: EntryFilter) -> CountedTimes | None:
    """Return the times of the matching entries, to count them; None if there are none.

    So many entries are read at most that a count takes a fraction of a second.
    """
    query = _build_query(tx, entry_filter)
    if entry_filter.run_filter is not None:
        found = _find_runs(tx, entry_filter, entry_filter.run_filter, most=_MAX_COUNTED_RUNS)
        if not found:
            return None
        query = _narrow_to_runs(tx, query, found)
        given = {**query.parameters, "most": search.MAX_COUNTED}
        return CountedTimes(_select("at", query), given, len(found) < _MAX_COUNTED_RUNS)
    if host_patterns.is_pattern(entry_filter.host):
        query = query.narrow(
            _HOST_PATTERN, like=host_patterns.convert_to_sql_like(entry_filter.host)
        )
    elif entry_filter.host:
        query = query.narrow("host = :host", host=entry_filter.host)
    last = min(cast("int", query.parameters.get("last", 2**62)), change_log.get_head(tx)[0])
    is_quick = view_conditions.can_view_everything(tx)
    floor = last - (search.MAX_COUNTED if is_quick else search.MAX_COUNTED // 10)
    is_complete = floor <= cast("int", query.parameters.get("first", 1))
    if not is_complete:
        # Without other conditions by time: the index of times is enough to count all entries.
        oldest = "at >= (SELECT at FROM entry WHERE seq = :floor)"
        query = query.narrow("seq >= :floor" if query.conditions else oldest, floor=floor)
    return CountedTimes(_select("at", query), query.parameters, is_complete)


def _find_among_newest(
    tx: Transaction, entry_filter: EntryFilter, query: _EntryQuery, limit: int
) -> list[Entry]:
    """Search the newest entries for the hosts of a pattern: one query instead of one per host."""
    beyond = entry_filter.before or change_log.get_head(tx)[0] + 1
    newest = query.narrow("seq >= :newest", newest=beyond - _MAX_SCANNED_ENTRIES)
    like = host_patterns.convert_to_sql_like(entry_filter.host)
    return _read_entries(tx, newest.narrow(_HOST_PATTERN, like=like), limit)


def _is_for_several_hosts(entry_filter: EntryFilter) -> bool:
    """Return whether each of several hosts may need a query of its own."""
    return entry_filter.run_filter is None and host_patterns.is_pattern(entry_filter.host)


def _build_single_query(
    tx: Transaction, entry_filter: EntryFilter, limit: int
) -> _EntryQuery | None:
    """Build the query if a single one is enough; None if nothing can match."""
    query = _build_query(tx, entry_filter)
    if entry_filter.run_filter is not None:
        most = max(limit, MAX_RUNS)
        found = _find_runs(tx, entry_filter, entry_filter.run_filter, most=most)
        return _narrow_to_runs(tx, query, found) if found else None
    return query.narrow("host = :host", host=entry_filter.host) if entry_filter.host else query


def _build_query(tx: Transaction, entry_filter: EntryFilter) -> _EntryQuery:
    viewable = view_conditions.entries_condition(tx)
    query = _EntryQuery([viewable.sql] if viewable.sql else [], {**viewable.given})
    if entry_filter.person:
        query = query.narrow("person = :person", person=entry_filter.person)
    if entry_filter.kind:
        # SQLite has no statistics, and takes the index that was made last. `+kind` keeps it from
        # walking all entries of a frequent kind for those of one host or person.
        narrower = entry_filter.host or entry_filter.person
        column = "+kind" if narrower and _is_frequent(tx, entry_filter.kind) else "kind"
        query = query.narrow(f"{column} = :kind", kind=entry_filter.kind)
    if entry_filter.before is not None:
        query = query.narrow("seq < :before", before=entry_filter.before)
    if entry_filter.since is not None:
        statement = "SELECT seq FROM entry WHERE at >= :at ORDER BY at, seq LIMIT 1"
        first = sql_text.fetch_scalar(tx, statement, {"at": entry_filter.since - search.SLACK})
        first = 2**62 if first is None else first
        query = query.narrow(
            "seq >= :first AND at >= :since", first=first, since=entry_filter.since
        )
    if entry_filter.until is not None:
        statement = "SELECT seq FROM entry WHERE at <= :at ORDER BY at DESC, seq DESC LIMIT 1"
        last = sql_text.fetch_scalar(tx, statement, {"at": entry_filter.until + search.SLACK})
        query = query.narrow(
            "seq <= :last AND at <= :until", last=last or 0, until=entry_filter.until
        )
    return query


def _is_frequent(tx: Transaction, kind: str) -> bool:
    """Return whether SQLite reads more entries by this kind than by a host; False elsewhere."""
    if not tx.embedded:
        return False
    counted = "SELECT count(*) FROM (SELECT 1 FROM entry WHERE kind = :kind LIMIT :most)"
    given = {"kind": kind, "most": _FREQUENT}
    return sql_text.fetch_scalar(tx, counted, given) == _FREQUENT


def _find_runs(
    tx: Transaction, entry_filter: EntryFilter, run_filter: RunFilter, *, most: int
) -> list[int]:
    """Return the numbers of the newest runs that the page can be about."""
    host, until = entry_filter.host or run_filter.host, _get_latest_request_time(tx, entry_filter)
    return search.find_run_numbers(tx, replace(run_filter, host=host, until=until), most=most)


def _narrow_to_runs(tx: Transaction, query: _EntryQuery, runs: Sequence[int]) -> _EntryQuery:
    """Search the entries of these runs alone."""
    listed = f"run IN ({sql_text.list_number_sql(tx, 'runs')})"
    query = query.narrow(listed, runs=json.dumps(runs))
    # `seq + 0` keeps the database from walking the log from its end, which may hold long stretches
    # about other runs: it uses the index on runs instead, and sorts only the numbers.
    which = f"{_select('seq', query)} ORDER BY seq + 0 DESC LIMIT :most"
    return _EntryQuery([f"seq IN ({which})"], query.parameters)


def _get_latest_request_time(tx: Transaction, entry_filter: EntryFilter) -> int | None:
    """Return the latest time at which a run of the page can have been requested."""
    limits = [
        entry_filter.until,
        entry_filter.run_filter.until if entry_filter.run_filter else None,
    ]
    if entry_filter.before is not None:
        query = "SELECT at FROM entry WHERE seq < :before ORDER BY seq DESC LIMIT 1"
        limits.append(sql_text.fetch_scalar(tx, query, {"before": entry_filter.before}))
    return min((limit for limit in limits if limit is not None), default=None)


def _read_entries(
    tx: Transaction, entry_query: _EntryQuery, limit: int, *, order: str = "seq DESC"
) -> list[Entry]:
    query = f"{_select(_COLUMNS, entry_query)} ORDER BY {order} LIMIT :most"
    rows = sql_text.fetch_rows(tx, query, {**entry_query.parameters, "most": limit})
    return [Entry(*row) for row in rows]


def _select(columns: str, query: _EntryQuery) -> str:
    where = f" WHERE {' AND '.join(query.conditions)}" if query.conditions else ""
    return f"SELECT {columns} FROM entry{where}"  # noqa: S608 - ours
