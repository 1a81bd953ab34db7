"""Entries of the change log, found by what they say and by the runs that they tell of."""

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from sqlalchemy import ColumnElement, select, text

from bot.store import changelog, search, tables
from bot.store.changelog import Entry
from bot.store.database import Transaction
from bot.store.search import Filter

_ENTRY = tables.entry.c
_AT_ONCE = 500
# So many entries, the newest, are looked at for what many of them are.
_WINDOW = 2_000
# Of how many runs, those that fit and are the newest, entries are found by what the run is.
NEWEST_RUNS = 200
# How much later than an entry with a higher number one may have been written.
_SLACK = 3_600_000_000


@dataclass(frozen=True)
class Wanted:
    """Which entries to find; "" and None mean any. host: a name or a pattern, such as `web*`.

    since, until: microseconds. runs: what the runs must be that they tell of; None for any, and
    for entries that tell of none. before: only entries with a lower number, to page.
    """

    host: str = ""
    person: str = ""
    kind: str = ""
    since: int | None = None
    until: int | None = None
    runs: Filter | None = field(default=None)
    before: int | None = None


def newest(tx: Transaction, wanted: Wanted, *, most: int) -> list[Entry]:
    """Return the newest of them, the newest first."""
    conditions = _conditions(tx, wanted)
    if wanted.runs is not None:
        return _of_runs(tx, wanted, conditions, most)
    if "*" not in wanted.host and "?" not in wanted.host:
        if wanted.host:
            conditions.append(_ENTRY.host == wanted.host)
        return _read(tx, conditions, most)
    found = _among_the_newest(tx, wanted, conditions, most)
    if len(found) >= most:
        return found
    found.clear()
    for host in _known_hosts(tx, wanted.host):
        found += _read(tx, [*conditions, _ENTRY.host == host], most)
    return _newest_of(found, most)


def _among_the_newest(
    tx: Transaction, wanted: Wanted, conditions: list[ColumnElement[bool]], most: int
) -> list[Entry]:
    """Look for the hosts of a pattern where most of them are: one look instead of one each."""
    beyond = wanted.before or changelog.head(tx)[0] + 1
    like = _ENTRY.host.like(search.like(wanted.host), escape="\\")
    return _read(tx, [*conditions, like, _ENTRY.seq >= beyond - _WINDOW], most)


def kinds(tx: Transaction) -> list[str]:
    """Return the kinds that the log has, by name: one step of the index for each."""
    query = text(
        "WITH RECURSIVE known(kind) AS (SELECT min(kind) FROM entry UNION ALL "
        "SELECT (SELECT min(entry.kind) FROM entry WHERE entry.kind > known.kind) FROM known "
        "WHERE known.kind IS NOT NULL) SELECT kind FROM known WHERE kind IS NOT NULL"
    )
    return list(tx.sql.execute(query).scalars())


def _conditions(tx: Transaction, wanted: Wanted) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.person:
        found.append(_ENTRY.person == wanted.person)
    if wanted.kind:
        found.append(_ENTRY.kind == wanted.kind)
    if wanted.before is not None:
        found.append(_ENTRY.seq < wanted.before)
    if wanted.since is not None:
        first = select(_ENTRY.seq).where(_ENTRY.at >= wanted.since - _SLACK)
        seq = tx.sql.execute(first.order_by(_ENTRY.at, _ENTRY.seq).limit(1)).scalar()
        found += [_ENTRY.seq >= (2**62 if seq is None else seq), _ENTRY.at >= wanted.since]
    if wanted.until is not None:
        last = select(_ENTRY.seq).where(_ENTRY.at <= wanted.until + _SLACK)
        last = last.order_by(_ENTRY.at.desc(), _ENTRY.seq.desc()).limit(1)
        seq = tx.sql.execute(last).scalar()
        found += [_ENTRY.seq <= (seq or 0), _ENTRY.at <= wanted.until]
    return found


def _of_runs(
    tx: Transaction, wanted: Wanted, conditions: list[ColumnElement[bool]], most: int
) -> list[Entry]:
    assert wanted.runs is not None  # noqa: S101 - asked for by the runs
    sought = replace(wanted.runs, host=wanted.host or wanted.runs.host)
    numbers = search.numbers(tx, sought, most=max(most, NEWEST_RUNS))
    found: list[Entry] = []
    for first in range(0, len(numbers), _AT_ONCE):
        some = _ENTRY.run.in_(numbers[first : first + _AT_ONCE])
        found += _read(tx, [*conditions, some], most)
    return _newest_of(found, most)


def _read(tx: Transaction, conditions: list[ColumnElement[bool]], most: int) -> list[Entry]:
    query = select(tables.entry).where(*conditions).order_by(_ENTRY.seq.desc()).limit(most)
    return [Entry(*row) for row in tx.sql.execute(query)]


def _newest_of(found: list[Entry], most: int) -> list[Entry]:
    return sorted(found, key=lambda entry: -entry.seq)[:most]


def _known_hosts(tx: Transaction, pattern: str) -> list[str]:
    """Return the hosts that fit, of all that the log names: one step of the index for each."""
    query = text(
        "WITH RECURSIVE known(host) AS (SELECT min(host) FROM entry UNION ALL "
        "SELECT (SELECT min(entry.host) FROM entry WHERE entry.host > known.host) FROM known "
        "WHERE known.host IS NOT NULL) SELECT host FROM known WHERE host IS NOT NULL"
    )
    closed = pattern.replace("[", "[[]")
    return [host for host in tx.sql.execute(query).scalars() if fnmatchcase(host, closed)]
