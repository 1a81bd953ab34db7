"""Search runs, page by page, newest first."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy import bindparam, select

from bot.db import runs, saved_views, tables, view_conditions
from bot.db.database import Transaction
from bot.db.runs import read_names
from bot.db.saved_views import SavedView
from bot.db.sql_text import each_value_sql, fetch_rows, fetch_scalar
from bot.db.tables import CHILD, PARENT
from bot.model.host_patterns import (
    compute_sort_range,
    convert_to_sql_like,
    is_pattern,
    matches_pattern,
)
from bot.model.run import (
    NEEDS_ATTENTION,
    Decision,
    Run,
    State,
    format_title,
    get_run_status,
    split_areas,
)
from bot.model.schedule import ScheduleTiming

# How many runs are looked at for a page: first few, since most filters let enough through.
_WINDOWS = (400, 20_000)
# A word lies apart from what the other filters look at, so each look costs more: where the words
# of each run are looked up, and more still where the run of each word is.
_PROBED_WINDOWS = (1_000,)
_WORD_WINDOWS = (400, 2_000)
# Among so few runs, those of several hosts or states are looked for one after the other, where it
# is known that there are some.
_DENSE = 60_000
# Hosts that fit a pattern are mostly many, and among so few of all runs are enough of theirs.
_NEAR = 8_000
# Of more hosts than this, enough is found among the newest runs of all hosts.
_MOST_HOSTS = 300
# A word that so many runs have is looked for last.
_COMMON = 1_000
# How much later than one with a higher number a run may have been asked for, or an entry of the
# log written: clocks are set back.
SLACK = 3_600_000_000


@dataclass(frozen=True)
class RunFilter:
    """Which runs to find; None means any. since, until: microseconds, on when it was asked.

    host: a name, or a pattern such as `web*`. words: the runbook's. text: words that must all
    occur in its values (`device=sdb` too), its reason, its end or what its host answered.
    states: `needs attention` too: those that succeeded, and whose report tells of something wrong.

    A request for several hosts is found as one; by host and by text, the child run of a host is.
    By area, a check on hosts of several areas is found by each of them.
    before: only runs with a lower number, to page from the newest to the oldest.
    """

    host: str | None = None
    person: str | None = None
    runbook: str | None = None
    states: frozenset[str] = frozenset()
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

    column: of the values; "" to walk all runs, "word" to walk those that have one. rest: SQL, and
    given what it names.
    """

    index: str
    column: str
    values: Sequence[str]
    rest: Sequence[str]
    given: Mapping[str, object]


def search_runs(tx: Transaction, wanted: RunFilter, *, most: int = 50) -> Page:
    """Return a page of runs, the newest first, each without its plan and its report."""
    found, older = find_page_numbers(tx, wanted, most)
    return Page(runs.list_runs(tx, found), older)


def find_newest_runs(tx: Transaction, wanted: RunFilter, *, most: int = 50) -> list[Run]:
    """Return the newest runs, however far back they are to be looked for, with their plans."""
    return runs.get_runs(tx, find_run_numbers(tx, wanted, most=most))


def find_run_numbers(tx: Transaction, wanted: RunFilter, *, most: int) -> list[int]:
    """Return the numbers of the newest runs, however far back they are to be looked for."""
    found: list[int] = []
    while True:
        more, older = find_page_numbers(tx, wanted, most - len(found))
        found += more
        if older is None or len(found) >= most:
            return found
        wanted = replace(wanted, before=older)


def find_page_numbers(
    tx: Transaction, wanted: RunFilter, most: int
) -> tuple[list[int], int | None]:
    """Return the numbers of a page's runs, the newest first, and `before` of the next page."""
    bounds = _bounds(tx, wanted)
    if bounds is None:
        return [], None
    if _hides(tx, wanted):
        # No index is walked: how far that goes would show how much there is.
        found = _own(tx, wanted, bounds, most + 1)
        return found[:most], found[most - 1] if len(found) > most else None
    near = _near(tx, wanted, bounds, most + 1)
    if len(near) > most:
        return near[:most], near[most - 1]
    walk = _walk(tx, wanted)
    return ([], None) if walk is None else _walked(tx, wanted, bounds, walk, most)


def _hides(tx: Transaction, wanted: RunFilter) -> bool:
    """Say whether the rules show no run of this runbook on any host that is meant."""
    if view_conditions.can_view_everything(tx):
        # Also where nothing is meant: there is no condition, and so no person's own, to fit.
        return False
    if wanted.host is None or not is_pattern(wanted.host):
        return view_conditions.hide(tx, host=wanted.host, words=wanted.runbook)
    meant = list_known_hosts(tx, "run", wanted.host)
    return all(view_conditions.hide(tx, host=host, words=wanted.runbook) for host in meant)


def _walked(
    tx: Transaction, wanted: RunFilter, bounds: tuple[int, int], walk: _Walk, most: int
) -> tuple[list[int], int | None]:
    """Return what one walk finds, in a small part of it at first, and where to go on."""
    windows = _PROBED_WINDOWS if wanted.text else _WINDOWS
    if walk.column == "word":
        windows = _WORD_WINDOWS
    found: list[int] = []
    floor = None
    for window in windows:
        if len(walk.values) > 1:
            floor = _highest_floor(tx, walk, bounds, max(window // len(walk.values), 50))
            found = _of_several(tx, walk, (floor, *bounds), most + 1)
        else:
            found = _of_one(tx, walk, bounds, window, most + 1)
        if len(found) > most:
            return found[:most], found[most - 1]
        if len(walk.values) <= 1:
            # How far that was is asked only where it is to be told.
            floor = fetch_scalar(tx, *_query(walk, (), bounds, "id DESC", 1, window))
        if floor is None:
            return found, None
    return found, floor


def _own(tx: Transaction, wanted: RunFilter, bounds: tuple[int, int], limit: int) -> list[int]:
    """Return numbers of what the person asked for, edited or decided, and that fits."""
    pattern = wanted.host if wanted.host is not None and is_pattern(wanted.host) else None
    rest, given = _rest(tx, wanted, pattern)
    host = None if pattern else wanted.host
    known = {"host": host, "requested_by": wanted.person, "runbook": wanted.runbook}
    exact = {column: value for column, value in known.items() if value is not None}
    areas = {f"area{n}": area for n, area in enumerate(_areas(tx, wanted))}
    words = {f"word{n}": word for n, word in enumerate(wanted.text)}
    fits = [f"run.{column} = :{column}" for column in exact] or ["1 = 1"]
    own = view_conditions.OWN.format(fits=_all(fits))
    # Written so that SQLite walks none of their indexes, but looks at the numbers.
    same = [f"CASE WHEN run.{column} = :{column} THEN 1 ELSE 0 END = 1" for column in exact]
    rest += [f"run.id IN ({own})", *same]
    rest += [f"run.area IN ({_named('area', len(areas))})"] if areas else []
    rest += [_HAS_WORD.format(n=n) for n in range(len(words))]
    walk = _Walk("", "", [], rest, given | exact | areas | words)
    query = _query(walk, rest, bounds, "id DESC", limit)
    return [number for (number,) in fetch_rows(tx, *query)]


def _near(tx: Transaction, wanted: RunFilter, bounds: tuple[int, int], limit: int) -> list[int]:
    """Return numbers of a pattern's runs among the newest of all; none without a pattern alone."""
    alone = not (wanted.person or wanted.runbook or wanted.area or wanted.text)
    if not alone or wanted.host is None or not is_pattern(wanted.host):
        return []
    walk = _Walk("ix_run_newest", "", [], *_rest(tx, wanted, wanted.host))
    lowest = f"(SELECT max(id) - {_NEAR} FROM run WHERE id < :beyond)"  # noqa: S608 - a number of ours
    query = _query(walk, walk.rest, bounds, "id DESC", limit, lowest=lowest)
    return [number for (number,) in fetch_rows(tx, *query)]


def _of_one(
    tx: Transaction, walk: _Walk, bounds: tuple[int, int], window: int, limit: int
) -> list[int]:
    """Return numbers of one value, among so many that have it."""
    floor, _ = _query(walk, (), bounds, "id DESC", 1, window)
    # No other bound beside it: the index would be walked down to that one.
    lowest = f"coalesce(({floor}), :lowest)"
    query = _query(walk, walk.rest, bounds, "id DESC", limit, lowest=lowest)
    return [number for (number,) in fetch_rows(tx, *query)]


def _of_several(
    tx: Transaction, walk: _Walk, bounds: tuple[int | None, int, int], limit: int
) -> list[int]:
    """Return numbers of several values down to a floor, if there is one."""
    floor, lowest, beyond = bounds
    # All that there is of what is rare is put in order: that index is of all runs.
    order = "id + 0 DESC" if floor is None or beyond - floor > _DENSE else "id DESC"
    query = _query(walk, walk.rest, (floor or lowest, beyond), order, limit)
    return [number for (number,) in fetch_rows(tx, *query)]


def _bounds(tx: Transaction, wanted: RunFilter) -> tuple[int, int] | None:
    """Return the numbers that the runs lie between, the second not included; None if nowhere."""
    lowest, beyond = 0, wanted.before or 2**31 - 1
    if wanted.since is not None:
        first = first_number_since(tx, wanted.since)
        if first is None:
            return None
        lowest = first
    if wanted.until is not None:
        query = (
            "SELECT id FROM run WHERE requested_at <= :until "
            "ORDER BY requested_at DESC, id DESC LIMIT 1"
        )
        last = fetch_scalar(tx, query, {"until": wanted.until + SLACK})
        if last is None:
            return None
        beyond = min(beyond, last + 1)
    return lowest, beyond


def first_number_since(tx: Transaction, moment: int) -> int | None:
    """Return a number that no run has a lower one of which was asked for since; None if none
    was."""
    query = "SELECT id FROM run WHERE requested_at >= :since ORDER BY requested_at, id LIMIT 1"
    return fetch_scalar(tx, query, {"since": moment - SLACK})


def _walk(tx: Transaction, wanted: RunFilter) -> _Walk | None:
    """Choose the index to walk: by what lets the fewest through. None if nothing can be found."""
    pattern = wanted.host if wanted.host is not None and is_pattern(wanted.host) else None
    areas = _areas(tx, wanted)
    filters: list[tuple[str, str, str | None]] = [
        ("ix_run_host", "host", None if pattern else wanted.host),
        ("ix_run_person", "requested_by", wanted.person),
        ("ix_run_runbook", "runbook", wanted.runbook),
        ("ix_run_area", "area", wanted.area),
    ]
    known = [(index, column, value) for index, column, value in filters if value is not None]
    rest, given = _rest(tx, wanted, pattern)
    given |= {column: value for _, column, value in known}
    given |= {f"area{n}": area for n, area in enumerate(areas)}
    in_areas = f"run.area IN ({_named('area', len(areas))})"
    also = [in_areas if by == "area" else f"run.{by} = :{by}" for _, by, _ in known]
    if wanted.text:
        # A word that is looked for by itself is walked however many have it.
        alone = not known and len(wanted.text) == 1
        counts = {word: 0 if alone else _count(tx, word) for word in wanted.text}
        given |= {f"word{n}": word for n, word in enumerate(counts)}
        has = {word: _HAS_WORD.format(n=n) for n, word in enumerate(counts)}
        rarest, *others = sorted(counts, key=lambda word: counts[word])
        if counts[rarest] < _COMMON or not known:
            rest += also
            return _Walk("", "word", [rarest], [*rest, *(has[word] for word in others)], given)
        # What many runs have lets fewer through than their host, or whoever asked for them.
        rest += has.values()
    if known:
        index, column, value = known[0]
        return _Walk(index, column, areas if column == "area" else [value], rest + also[1:], given)
    if pattern is not None:
        hosts = list_known_hosts(tx, "run", pattern)
        if not hosts:
            return None
        if len(hosts) <= _MOST_HOSTS:
            return _Walk("ix_run_host", "host", hosts, rest, given)
    elif wanted.states:
        return _Walk("ix_run_state", "state", _states(wanted), rest, given)
    return _Walk("ix_run_newest", "", [], rest, given)


def _areas(tx: Transaction, wanted: RunFilter) -> Sequence[str]:
    """Return all that runs in an area have for theirs: checks may be in others besides."""
    if wanted.area is None:
        return []
    if wanted.host is not None or wanted.text:
        # Found by its parts, each of which is in one.
        return [wanted.area]
    known = [area for (area,) in fetch_rows(tx, each_value_sql("run", "area"), {})]
    beside = [one for one in known if one != wanted.area and wanted.area in split_areas(one)]
    return [wanted.area, *beside]


# The bound says nothing new, but keeps PostgreSQL from reading a word from the newest run down.
_HAS_WORD = (
    "EXISTS (SELECT 1 FROM search_word AS w{n} "
    "WHERE w{n}.word = :word{n} AND w{n}.run = run.id AND w{n}.run < :beyond)"
)


def _rest(
    tx: Transaction, wanted: RunFilter, pattern: str | None
) -> tuple[list[str], dict[str, object]]:
    by_part = wanted.host is not None or bool(wanted.text)
    rest = [f"run.fan_out_role != {PARENT}" if by_part else f"run.fan_out_role != {CHILD}"]
    seen = view_conditions.runs_condition(tx)
    rest += [seen.sql] if seen.sql else []
    given: dict[str, object] = {**seen.given}
    if wanted.states:
        states = _states(wanted)
        given |= {f"s{n}": state for n, state in enumerate(states)}
        rest.append(f"run.state IN ({_named('s', len(states))})")
        if NEEDS_ATTENTION in wanted.states and State.SUCCEEDED not in wanted.states:
            rest.append(f"(run.needs_attention OR run.state != '{State.SUCCEEDED}')")
    if wanted.since is not None:
        given["since"] = wanted.since
        rest.append("run.requested_at >= :since")
    if wanted.until is not None:
        given["until"] = wanted.until
        rest.append("run.requested_at <= :until")
    if pattern is not None:
        given["like"] = convert_to_sql_like(pattern)
        rest.append("run.host LIKE :like ESCAPE '\\'")
    return rest, given


def _states(wanted: RunFilter) -> list[str]:
    """Return the states that the runs are in which are wanted."""
    found = {State.SUCCEEDED if one == NEEDS_ATTENTION else one for one in wanted.states}
    return sorted(str(one) for one in found)


def _named(letter: str, count: int) -> str:
    return ", ".join(f":{letter}{n}" for n in range(count))


def _query(
    walk: _Walk,
    rest: Sequence[str],
    bounds: tuple[int, int],
    order: str,
    limit: int,
    skip: int = 0,
    lowest: str = ":lowest",
) -> tuple[str, Mapping[str, object]]:
    """Return SQL for the numbers of one walk between the bounds, and what it names.

    lowest: SQL for where it ends.
    """
    given = {**walk.given, "lowest": bounds[0], "beyond": bounds[1]}
    given |= {f"v{n}": value for n, value in enumerate(walk.values)}
    between = f"{{0}} >= {lowest} AND {{0}} < :beyond"
    if walk.column == "word":
        fits = [f"EXISTS (SELECT 1 FROM run WHERE run.id = search_word.run AND {_all(rest)})"]  # noqa: S608 - ours
        conditions = [
            "search_word.word = :v0",
            between.format("search_word.run"),
            *(fits if rest else ()),
        ]
        what = f"SELECT run FROM search_word WHERE {_all(conditions)} ORDER BY run DESC"  # noqa: S608 - ours
    else:
        one_of = f"run.{walk.column} IN ({_named('v', len(walk.values))})"
        conditions = [*([one_of] if walk.column else ()), *rest, between.format("run.id")]
        what = f"SELECT id FROM run WHERE {_all(conditions)} ORDER BY {order}"  # noqa: S608 - ours
    return f"{what} LIMIT {limit} OFFSET {skip}", given


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions)


def _highest_floor(tx: Transaction, walk: _Walk, bounds: tuple[int, int], each: int) -> int | None:
    """Return the number down to which each of the values has been looked at."""
    # SQLite would walk all runs for a value that it takes for a frequent one.
    listed, by = (
        ("json_each(:several) AS one", f"INDEXED BY {walk.index}")
        if tx.embedded
        else ("json_array_elements_text(CAST(:several AS json)) AS one(value)", "")
    )
    query = (
        f"SELECT max((SELECT id FROM run {by} WHERE run.{walk.column} = one.value "  # noqa: S608 - ours
        "AND id >= :lowest AND id < :beyond ORDER BY id DESC LIMIT 1 OFFSET :each)) "
        f"FROM {listed}"
    )
    given = {"several": json.dumps(list(walk.values)), "each": each}
    return fetch_scalar(tx, query, given | {"lowest": bounds[0], "beyond": bounds[1]})


def list_known_hosts(tx: Transaction, table: str, pattern: str) -> list[str]:
    """Return the hosts that fit a pattern, of all that a table has ever told of."""
    first, beyond = compute_sort_range(pattern)
    end = f"AND {table}.host < :beyond" if beyond else ""
    query = each_value_sql(table, "host", "WHERE host >= :first", end)
    known = fetch_rows(tx, query, {"first": first, "beyond": beyond})
    return [host for (host,) in known if matches_pattern(host, pattern)]


def _count(tx: Transaction, word: str) -> int:
    """Return how many runs have a word; no more than it takes to be common."""
    query = (
        "SELECT count(*) FROM "  # noqa: S608 - a number of ours
        f"(SELECT 1 AS one FROM search_word WHERE word = :word LIMIT {_COMMON}) AS enough"
    )
    return fetch_scalar(tx, query, {"word": word})


_RUN = tables.run.c


class ListedRun(NamedTuple):
    """One run. Times are microseconds since 1970, UTC; None means not yet."""

    id: int
    stands: str
    host: str
    area: str
    requested_by: str
    reason: str
    requested_at: int
    started_at: int | None
    ended_at: int | None
    summary: str
    runbook: str
    kind: str
    request: str
    undo_of: int | None
    all_hosts: str
    timing: str | None
    needs_attention: bool

    @property
    def state(self) -> State:
        return State(self.stands)

    @property
    def status(self) -> str:
        return get_run_status(self.state, needs_attention=self.needs_attention)

    @property
    def title(self) -> str:
        timing = ScheduleTiming.from_json(self.timing) if self.timing else None
        return format_title(self.request or self.runbook, undo_of=self.undo_of, timing=timing)

    @property
    def hosts(self) -> Sequence[str]:
        """Those of a request for several; () of any other."""
        return read_names(self.all_hosts)


# The columns that have another name.
_OTHERWISE = {
    "stands": "state",
    "all_hosts": "hosts",
}
_COLUMNS = [_RUN[_OTHERWISE.get(name, name)] for name in ListedRun._fields]
_LIST = (
    select(*_COLUMNS)
    .order_by(_RUN.id.desc())
    .where(_RUN.id.in_(bindparam("wanted", expanding=True)))
)


@dataclass(frozen=True)
class RunListing:
    """runs: as many as fit, or those among the ones looked at. older: `before` of the next page;
    None if there is none. votes: by run. views: those of whoever looks at it."""

    runs: Sequence[ListedRun]
    older: int | None
    votes: Mapping[int, Sequence[Decision]]
    views: Sequence[SavedView]


def list_run_page(
    tx: Transaction, wanted: RunFilter | None, *, most: int, whose: str
) -> RunListing:
    """Return a page of runs, the newest first.

    wanted: None for a page without any. whose: who looks at it.
    """
    found, older = ([], None) if wanted is None else find_page_numbers(tx, wanted, most)
    rows = tx.sql.execute(_LIST, {"wanted": found})
    return RunListing(
        [*map(ListedRun._make, rows)],
        older,
        runs.list_decisions_on(tx, found),
        saved_views.list_views(tx, whose),
    )
