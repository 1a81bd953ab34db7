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
_WINDOW = 2_000
# Of how many runs, those that fit and are the newest, entries are found by what the run is.
NEWEST_RUNS = 200
# One step of the index for each.
_KINDS = sql_text.each_value_sql("entry", "kind")


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
    runs: RunFilter | None = field(default=None)
    before: int | None = None


@dataclass(frozen=True)
class _Sought:
    """conditions: SQL that an entry must fit; given: what that names."""

    conditions: Sequence[str]
    given: dict[str, object]

    def also(self, condition: str, **given: object) -> "_Sought":
        return _Sought([*self.conditions, condition], {**self.given, **given})


@dataclass(frozen=True)
class LogPage:
    """A page of the log. entries: the newest first. head: number and hash of the newest of all.

    kinds: those that the log has, by name; where not all of it may be viewed, those of the page.
    """

    entries: Sequence[Entry]
    head: tuple[int, str]
    kinds: Sequence[str]


def get_log_page(tx: Transaction, wanted: EntryFilter | None, *, most: int) -> LogPage:
    """Return a page of the log.

    wanted: None for a page without entries.
    """
    whole = view_conditions.can_view_everything(tx)
    several = wanted is not None and _of_several(wanted)
    found = find_newest_entries(tx, wanted, most=most) if wanted and several else []
    sought = None if wanted is None or several else _narrowed(tx, wanted, most)
    if sought:
        found += _read(tx, sought, most)
    known = [kind for (kind,) in sql_text.fetch_rows(tx, _KINDS, {})] if whole else []
    kinds = known if whole else sorted({entry.kind for entry in found})
    return LogPage(found, change_log.get_head(tx), kinds)


def find_newest_entries(tx: Transaction, wanted: EntryFilter, *, most: int) -> list[Entry]:
    """Return the newest of them, the newest first."""
    if not _of_several(wanted):
        sought = _narrowed(tx, wanted, most)
        return _read(tx, sought, most) if sought else []
    sought = _sought(tx, wanted)
    found = _among_the_newest(tx, wanted, sought, most)
    if len(found) >= most:
        return found
    found.clear()
    for host in search.list_known_hosts(tx, "entry", wanted.host):
        found += _read(tx, sought.also("host = :host", host=host), most)
    return sorted(found, key=lambda entry: -entry.seq)[:most]


def _among_the_newest(
    tx: Transaction, wanted: EntryFilter, sought: _Sought, most: int
) -> list[Entry]:
    """Look for the hosts of a pattern where most of them are: one look instead of one each."""
    beyond = wanted.before or change_log.get_head(tx)[0] + 1
    newest = sought.also("seq >= :newest", newest=beyond - _WINDOW)
    like = host_patterns.pattern_to_like(wanted.host)
    return _read(tx, newest.also("host LIKE :like ESCAPE '\\'", like=like), most)


def _of_several(wanted: EntryFilter) -> bool:
    """Say whether it takes a look at each of several hosts."""
    return wanted.runs is None and host_patterns.is_pattern(wanted.host)


def _narrowed(tx: Transaction, wanted: EntryFilter, most: int) -> _Sought | None:
    """Return what one look finds them by; None if there is nothing to be found."""
    sought = _sought(tx, wanted)
    if wanted.runs is not None:
        return _of_runs(tx, wanted, sought, most)
    return sought.also("host = :host", host=wanted.host) if wanted.host else sought


def _sought(tx: Transaction, wanted: EntryFilter) -> _Sought:
    seen = view_conditions.entries_condition(tx)
    sought = _Sought([seen.sql] if seen.sql else [], {**seen.given})
    if wanted.person:
        sought = sought.also("person = :person", person=wanted.person)
    if wanted.kind:
        sought = sought.also("kind = :kind", kind=wanted.kind)
    if wanted.before is not None:
        sought = sought.also("seq < :before", before=wanted.before)
    if wanted.since is not None:
        query = "SELECT seq FROM entry WHERE at >= :at ORDER BY at, seq LIMIT 1"
        first = sql_text.fetch_scalar(tx, query, {"at": wanted.since - search.SLACK})
        first = 2**62 if first is None else first
        sought = sought.also("seq >= :first AND at >= :since", first=first, since=wanted.since)
    if wanted.until is not None:
        query = "SELECT seq FROM entry WHERE at <= :at ORDER BY at DESC, seq DESC LIMIT 1"
        last = sql_text.fetch_scalar(tx, query, {"at": wanted.until + search.SLACK})
        sought = sought.also("seq <= :last AND at <= :until", last=last or 0, until=wanted.until)
    return sought


def _of_runs(tx: Transaction, wanted: EntryFilter, sought: _Sought, most: int) -> _Sought | None:
    assert wanted.runs is not None  # noqa: S101 - asked for by the runs
    host, until = wanted.host or wanted.runs.host, _asked_until(tx, wanted)
    asked = replace(wanted.runs, host=host, until=until)
    numbers = search.find_run_numbers(tx, asked, most=max(most, NEWEST_RUNS))
    if not numbers:
        return None
    sought = sought.also("run IN :runs", runs=numbers)
    # By the index of runs, whatever else was written since: walked from its end, the log may tell
    # of others for long. Of those that are left over, nothing but the number is looked at.
    which = f"SELECT seq FROM entry WHERE {_all(sought)} ORDER BY seq + 0 DESC LIMIT :most"  # noqa: S608 - ours
    return _Sought([f"seq IN ({which})"], sought.given)


def _asked_until(tx: Transaction, wanted: EntryFilter) -> int | None:
    """Return when a run was asked for at the latest that older entries may tell of."""
    moments = [wanted.until, wanted.runs.until if wanted.runs else None]
    if wanted.before is not None:
        query = "SELECT at FROM entry WHERE seq < :before ORDER BY seq DESC LIMIT 1"
        moments.append(sql_text.fetch_scalar(tx, query, {"before": wanted.before}))
    return min((moment for moment in moments if moment is not None), default=None)


def _read(tx: Transaction, sought: _Sought, most: int) -> list[Entry]:
    where = f"WHERE {_all(sought)}" if sought.conditions else ""
    query = f"SELECT {_COLUMNS} FROM entry {where} ORDER BY seq DESC LIMIT :most"  # noqa: S608 - ours
    rows = sql_text.fetch_rows(tx, query, {**sought.given, "most": most})
    return [Entry(*row) for row in rows]


def _all(sought: _Sought) -> str:
    return " AND ".join(sought.conditions)
