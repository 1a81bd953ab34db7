"""Entries of the change log, found by what they say and by the runs that they tell of."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db import search, sql_text, tables, view_conditions
from bot.db.database import Transaction
from bot.db.search import RunFilter
from bot.model import host_patterns

_COLUMNS = ", ".join(column.name for column in tables.entry.columns)
# So many entries, the newest, are looked at for what many of them are.
_MAX_SCANNED_ENTRIES = 2_000
# Of how many runs, those that fit and are the newest, entries are found by what the run is.
MAX_RUNS = 200
# One step of the index for each.
_KINDS_STATEMENT = sql_text.each_value_sql("entry", "kind")


@dataclass(frozen=True)
class EntryFilter:
    """Which entries to find; "" and None mean any. host: a name or a pattern, such as `web*`.

    since, until: microseconds. runs: what the runs must be that they tell of; None for any, and
    for entries that tell of none. before: only entries with a lower number, to page.
    """

    host: str = ""
    person: str = ""
    kind: str = ""
    since: int | None = None
    until: int | None = None
    run_filter: RunFilter | None = field(default=None)
    before: int | None = None


@dataclass(frozen=True)
class _EntryQuery:
    """conditions: SQL that an entry must fit; given: what that names."""

    conditions: Sequence[str]
    parameters: dict[str, object]

    def add_condition(self, condition: str, **given: object) -> "_EntryQuery":
        return _EntryQuery([*self.conditions, condition], {**self.parameters, **given})


@dataclass(frozen=True)
class LogPage:
    """A page of the log. entries: the newest first. head: number and hash of the newest of all.

    kinds: those that the log has, by name; where not all of it may be viewed, those of the page.
    """

    entries: Sequence[Entry]
    head: tuple[int, str]
    kinds: Sequence[str]


def get_log_page(tx: Transaction, entry_filter: EntryFilter | None, *, limit: int) -> LogPage:
    """Return a page of the log.

    wanted: None for a page without entries.
    """
    whole = view_conditions.can_view_everything(tx)
    several = entry_filter is not None and _is_for_several_hosts(entry_filter)
    found = find_newest_entries(tx, entry_filter, limit=limit) if entry_filter and several else []
    sought = (
        None if entry_filter is None or several else _build_single_query(tx, entry_filter, limit)
    )
    if sought:
        found += _read_entries(tx, sought, limit)
    known = [kind for (kind,) in sql_text.fetch_rows(tx, _KINDS_STATEMENT, {})] if whole else []
    kinds = known if whole else sorted({entry.kind for entry in found})
    return LogPage(found, change_log.get_head(tx), kinds)


def find_newest_entries(tx: Transaction, entry_filter: EntryFilter, *, limit: int) -> list[Entry]:
    """Return the newest of them, the newest first."""
    if not _is_for_several_hosts(entry_filter):
        sought = _build_single_query(tx, entry_filter, limit)
        return _read_entries(tx, sought, limit) if sought else []
    sought = _build_query(tx, entry_filter)
    found = _find_among_newest(tx, entry_filter, sought, limit)
    if len(found) >= limit:
        return found
    found.clear()
    for host in search.list_known_hosts(tx, "entry", entry_filter.host):
        found += _read_entries(tx, sought.add_condition("host = :host", host=host), limit)
    return sorted(found, key=lambda entry: -entry.seq)[:limit]


def _find_among_newest(
    tx: Transaction, entry_filter: EntryFilter, query: _EntryQuery, limit: int
) -> list[Entry]:
    """Look for the hosts of a pattern where most of them are: one look instead of one each."""
    beyond = entry_filter.before or change_log.get_head(tx)[0] + 1
    newest = query.add_condition("seq >= :newest", newest=beyond - _MAX_SCANNED_ENTRIES)
    like = host_patterns.convert_to_sql_like(entry_filter.host)
    return _read_entries(tx, newest.add_condition("host LIKE :like ESCAPE '\\'", like=like), limit)


def _is_for_several_hosts(entry_filter: EntryFilter) -> bool:
    """Say whether it takes a look at each of several hosts."""
    return entry_filter.run_filter is None and host_patterns.is_pattern(entry_filter.host)


def _build_single_query(
    tx: Transaction, entry_filter: EntryFilter, limit: int
) -> _EntryQuery | None:
    """Return what one look finds them by; None if there is nothing to be found."""
    sought = _build_query(tx, entry_filter)
    if entry_filter.run_filter is not None:
        return _add_run_condition(tx, entry_filter, sought, limit)
    return (
        sought.add_condition("host = :host", host=entry_filter.host)
        if entry_filter.host
        else sought
    )


def _build_query(tx: Transaction, entry_filter: EntryFilter) -> _EntryQuery:
    seen = view_conditions.entries_condition(tx)
    sought = _EntryQuery([seen.sql] if seen.sql else [], {**seen.given})
    if entry_filter.person:
        sought = sought.add_condition("person = :person", person=entry_filter.person)
    if entry_filter.kind:
        sought = sought.add_condition("kind = :kind", kind=entry_filter.kind)
    if entry_filter.before is not None:
        sought = sought.add_condition("seq < :before", before=entry_filter.before)
    if entry_filter.since is not None:
        query = "SELECT seq FROM entry WHERE at >= :at ORDER BY at, seq LIMIT 1"
        first = sql_text.fetch_scalar(tx, query, {"at": entry_filter.since - search.SLACK})
        first = 2**62 if first is None else first
        sought = sought.add_condition(
            "seq >= :first AND at >= :since", first=first, since=entry_filter.since
        )
    if entry_filter.until is not None:
        query = "SELECT seq FROM entry WHERE at <= :at ORDER BY at DESC, seq DESC LIMIT 1"
        last = sql_text.fetch_scalar(tx, query, {"at": entry_filter.until + search.SLACK})
        sought = sought.add_condition(
            "seq <= :last AND at <= :until", last=last or 0, until=entry_filter.until
        )
    return sought


def _add_run_condition(
    tx: Transaction, entry_filter: EntryFilter, query: _EntryQuery, limit: int
) -> _EntryQuery | None:
    assert entry_filter.run_filter is not None  # noqa: S101 - asked for by the runs
    host, until = (
        entry_filter.host or entry_filter.run_filter.host,
        _get_latest_request_time(tx, entry_filter),
    )
    asked = replace(entry_filter.run_filter, host=host, until=until)
    numbers = search.find_run_numbers(tx, asked, most=max(limit, MAX_RUNS))
    if not numbers:
        return None
    query = query.add_condition("run IN :runs", runs=numbers)
    # By the index of runs, whatever else was written since: walked from its end, the log may tell
    # of others for long. Of those that are left over, nothing but the number is looked at.
    which = (
        f"SELECT seq FROM entry WHERE {_join_conditions(query)} ORDER BY seq + 0 DESC LIMIT :most"  # noqa: S608 - ours
    )
    return _EntryQuery([f"seq IN ({which})"], query.parameters)


def _get_latest_request_time(tx: Transaction, entry_filter: EntryFilter) -> int | None:
    """Return when a run was asked for at the latest that older entries may tell of."""
    moments = [
        entry_filter.until,
        entry_filter.run_filter.until if entry_filter.run_filter else None,
    ]
    if entry_filter.before is not None:
        query = "SELECT at FROM entry WHERE seq < :before ORDER BY seq DESC LIMIT 1"
        moments.append(sql_text.fetch_scalar(tx, query, {"before": entry_filter.before}))
    return min((moment for moment in moments if moment is not None), default=None)


def _read_entries(tx: Transaction, entry_query: _EntryQuery, limit: int) -> list[Entry]:
    where = f"WHERE {_join_conditions(entry_query)}" if entry_query.conditions else ""
    query = f"SELECT {_COLUMNS} FROM entry {where} ORDER BY seq DESC LIMIT :most"  # noqa: S608 - ours
    rows = sql_text.fetch_rows(tx, query, {**entry_query.parameters, "most": limit})
    return [Entry(*row) for row in rows]


def _join_conditions(query: _EntryQuery) -> str:
    return " AND ".join(query.conditions)
