"""Search: runs by all that is known of them, page by page, newest first.

No page takes longer because there are more runs: each walks an index from where the page before
ended, looks at a bounded number of its entries, and says where to go on.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, func, select, text

from bot.run import Run, State
from bot.store import runs, tables
from bot.store.database import Transaction

# How many runs are looked at for a page: first few, since most filters let enough through.
_WINDOWS = (400, 20_000)
# A word lies apart from what the other filters look at, so each look costs more: where the words
# of each run are looked up, and more still where the run of each word is.
_PROBED_WINDOWS = (400, 8_000)
_WORD_WINDOWS = (400, 2_000)
# Among so few runs, those of several hosts or states are looked for one after the other, where it
# is known that there are some.
_DENSE = 60_000
# Of more hosts than this, enough is found among the newest runs of all hosts.
_MOST_HOSTS = 300
# A word that so many runs have is looked for last.
_COMMON = 1_000
_WHOLE, _PART = 1, 2
# How much later than a run with a higher number one may have been asked: clocks are set back.
_SLACK = 3_600_000_000
_RUN, _WORD = tables.run.c, tables.word.c


@dataclass(frozen=True)
class Filter:
    """Which runs to find; None means any. since, until: microseconds, on when it was asked.

    host: a name, or a pattern such as `web*`. words: the runbook's. text: words that must all
    occur in its values (`device=sdb` too), its reason, its end or what its host answered.

    A request for several hosts is found as one; by host and by text, the child run of a host is.
    before: only runs with a lower number, to page from the newest to the oldest.
    """

    host: str | None = None
    person: str | None = None
    words: str | None = None
    states: frozenset[State] = frozenset()
    since: int | None = None
    until: int | None = None
    before: int | None = None
    area: str | None = None
    text: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """runs: as many as fit, or those among the ones looked at. older: `before` of the next page;
    None if there is none."""

    runs: list[Run]
    older: int | None


@dataclass(frozen=True)
class _Walk:
    """One way through the runs: an index, the values of its first column, and what else must fit.

    column: of the values; None to walk all runs.
    """

    index: str
    column: ColumnElement[Any] | None
    values: Sequence[str]
    rest: Sequence[ColumnElement[bool]]


def page(tx: Transaction, wanted: Filter, *, most: int = 50) -> Page:
    """Return a page of runs, the newest first, each without its plan and its report."""
    numbers, older = _numbers(tx, wanted, most)
    return Page(runs.listed(tx, numbers), older)


def newest(tx: Transaction, wanted: Filter, *, most: int = 50) -> list[Run]:
    """Return the newest runs, however far back they are to be looked for, with their plans."""
    found: list[int] = []
    while True:
        numbers, older = _numbers(tx, wanted, most - len(found))
        found += numbers
        if older is None or len(found) >= most:
            return runs.several(tx, found)
        wanted = replace(wanted, before=older)


def _numbers(tx: Transaction, wanted: Filter, most: int) -> tuple[list[int], int | None]:
    bounds = _bounds(tx, wanted)
    walk = None if bounds is None else _walk(tx, wanted)
    if bounds is None or walk is None:
        return [], None
    windows = _PROBED_WINDOWS if wanted.text else _WINDOWS
    if walk.column is _WORD.word:
        windows = _WORD_WINDOWS
    found: list[int] = []
    floor = None
    for window in windows:
        floor = _floor(tx, walk, bounds, window)
        query = _query(walk, (floor or bounds[0], bounds[1]))
        if len(walk.values) > 1 and (floor is None or bounds[1] - floor > _DENSE):
            # All that there is of what is rare is put in order: that index is of all runs.
            query = query.order_by(None).order_by((_RUN.id + 0).desc())
        query = query.limit(most + 1)
        found = list(tx.sql.execute(query).scalars())
        if len(found) > most:
            return found[:most], found[most - 1]
        if floor is None:
            return found, None
    return found, floor


def _bounds(tx: Transaction, wanted: Filter) -> tuple[int, int] | None:
    """Return the numbers that the runs lie between, the second not included; None if nowhere."""
    lowest, beyond = 0, wanted.before or 2**31 - 1
    if wanted.since is not None:
        query = select(_RUN.id).where(_RUN.asked >= wanted.since - _SLACK)
        first = tx.sql.execute(query.order_by(_RUN.asked, _RUN.id).limit(1)).scalar()
        if first is None:
            return None
        lowest = first
    if wanted.until is not None:
        query = select(_RUN.id).where(_RUN.asked <= wanted.until + _SLACK)
        last = tx.sql.execute(query.order_by(_RUN.asked.desc(), _RUN.id.desc()).limit(1)).scalar()
        if last is None:
            return None
        beyond = min(beyond, last + 1)
    return lowest, beyond


def _walk(tx: Transaction, wanted: Filter) -> _Walk | None:
    """Choose the index to walk: by what lets the fewest through. None if nothing can be found."""
    pattern = wanted.host if wanted.host is not None and _is_pattern(wanted.host) else None
    filters: list[tuple[str, ColumnElement[Any], str | None]] = [
        ("ix_run_host", _RUN.host, None if pattern else wanted.host),
        ("ix_run_person", _RUN.asked_by, wanted.person),
        ("ix_run_words", _RUN.words, wanted.words),
        ("ix_run_area", _RUN.area, wanted.area),
    ]
    given = [(index, column, value) for index, column, value in filters if value is not None]
    rest = _rest(wanted, pattern)
    if wanted.text:
        counts = {word: _count(tx, word) for word in wanted.text}
        rarest, *others = sorted(counts, key=lambda word: counts[word])
        if counts[rarest] < _COMMON or not given:
            rest += [column == value for _, column, value in given]
            return _Walk("", _WORD.word, [rarest], [*rest, *map(_has_word, others)])
        # What many runs have lets fewer through than their host, or whoever asked for them.
        rest += map(_has_word, counts)
    if given:
        index, column, value = given[0]
        rest += [other == wanted_too for _, other, wanted_too in given[1:]]
        return _Walk(index, column, [value], rest)
    if pattern is not None:
        hosts = _known_hosts(tx, pattern)
        if not hosts:
            return None
        if len(hosts) <= _MOST_HOSTS:
            return _Walk("ix_run_host", _RUN.host, hosts, rest)
    elif wanted.states:
        states = sorted(state.value for state in wanted.states)
        return _Walk("ix_run_state", _RUN.state, states, rest)
    return _Walk("ix_run_newest", None, [], rest)


def _rest(wanted: Filter, pattern: str | None) -> list[ColumnElement[bool]]:
    by_part = wanted.host is not None or bool(wanted.text)
    rest = [_RUN.place != _WHOLE if by_part else _RUN.place != _PART]
    if wanted.states:
        rest.append(_RUN.state.in_(sorted(state.value for state in wanted.states)))
    if wanted.since is not None:
        rest.append(_RUN.asked >= wanted.since)
    if wanted.until is not None:
        rest.append(_RUN.asked <= wanted.until)
    if pattern is not None:
        rest.append(_RUN.host.like(_like(pattern), escape="\\"))
    return rest


def _query(walk: _Walk, bounds: tuple[int, int]) -> Select[Any]:
    if walk.column is _WORD.word:
        fits = exists().where(_RUN.id == _WORD.run, *walk.rest)
        query = select(_WORD.run).where(_WORD.word == walk.values[0], fits)
        return _between(query, _WORD.run, bounds)
    query = select(_RUN.id).where(*_begins(walk), *walk.rest)
    return _between(query, _RUN.id, bounds)


def _begins(walk: _Walk) -> list[ColumnElement[bool]]:
    if walk.column is None:
        return []
    if len(walk.values) == 1:
        return [walk.column == walk.values[0]]
    return [walk.column.in_(walk.values)]


def _between(
    query: Select[Any], number: ColumnElement[int], bounds: tuple[int, int]
) -> Select[Any]:
    return query.where(number >= bounds[0], number < bounds[1]).order_by(number.desc())


def _floor(tx: Transaction, walk: _Walk, bounds: tuple[int, int], window: int) -> int | None:
    """Return the lowest number to look at; None if that is less than a window to the end."""
    each = max(window // max(len(walk.values), 1), 50)
    if len(walk.values) > 1:
        return _highest_floor(tx, walk, bounds, each)
    plain = _Walk(walk.index, walk.column, walk.values, [])
    if walk.column is _WORD.word:
        query = select(_WORD.run).where(_WORD.word == walk.values[0])
        query = _between(query, _WORD.run, bounds)
    else:
        query = _query(plain, bounds)
    return tx.sql.execute(query.limit(1).offset(each)).scalar()


def _highest_floor(tx: Transaction, walk: _Walk, bounds: tuple[int, int], each: int) -> int | None:
    """Return the number down to which each of the values has been looked at."""
    assert walk.column is not None  # noqa: S101 - there are several values of it
    name = walk.column.key
    # SQLite would walk all runs for a value that it takes for a frequent one.
    listed, by = (
        ("json_array_elements_text(CAST(:values AS json)) AS one(value)", "")
        if tx.sql.dialect.name == "postgresql"
        else ("json_each(:values) AS one", f"INDEXED BY {walk.index}")
    )
    query = text(
        f"SELECT max((SELECT id FROM run {by} WHERE run.{name} = one.value AND id >= :lowest "  # noqa: S608 - a column of ours
        f"AND id < :beyond ORDER BY id DESC LIMIT 1 OFFSET :each)) FROM {listed}"
    )
    given = {"values": json.dumps(list(walk.values)), "each": each}
    return tx.sql.execute(query, given | {"lowest": bounds[0], "beyond": bounds[1]}).scalar()


def _known_hosts(tx: Transaction, pattern: str) -> list[str]:
    """Return the hosts that fit a pattern, of all that anything was ever asked for."""
    first, beyond = _range_of(pattern)
    end = "AND run.host < :beyond" if beyond else ""
    query = text(
        "WITH RECURSIVE known(host) AS (SELECT min(host) FROM run WHERE host >= :first UNION ALL "  # noqa: S608 - ours
        f"SELECT (SELECT min(run.host) FROM run WHERE run.host > known.host {end}) FROM known "
        "WHERE known.host IS NOT NULL) SELECT host FROM known WHERE host IS NOT NULL"
    )
    given = {"first": first} | ({"beyond": beyond} if beyond else {})
    known = tx.sql.execute(query, given).scalars()
    return [host for host in known if fnmatchcase(host, _closed(pattern))]


def _range_of(pattern: str) -> tuple[str, str]:
    """Return what hosts that fit sort between, wherever the database sorts by: letters follow
    each other in every order, and so do digits."""
    begin = pattern.replace("?", "*").partition("*")[0]
    while begin and not ("a" <= begin[-1] < "z" or "0" <= begin[-1] < "9"):
        begin = begin[:-1]
    return (begin, begin[:-1] + chr(ord(begin[-1]) + 1)) if begin else ("", "")


def _is_pattern(host: str) -> bool:
    return "*" in host or "?" in host


def _closed(pattern: str) -> str:
    """Only * and ? mean something: a bracket is a bracket."""
    return pattern.replace("[", "[[]")


def _like(pattern: str) -> str:
    for special in "\\%_":
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%").replace("?", "_")


def _count(tx: Transaction, word: str) -> int:
    """Return how many runs have a word; no more than it takes to be common."""
    some = select(_WORD.run).where(_WORD.word == word).limit(_COMMON).subquery()
    return tx.sql.execute(select(func.count()).select_from(some)).scalar_one()


def _has_word(word: str) -> ColumnElement[bool]:
    other = tables.word.alias()
    return exists().where(other.c.word == word, other.c.run == _RUN.id)
