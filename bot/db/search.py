"""Search runs, page by page, newest first."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import Row, bindparam, select

from bot.db import runs, saved_views, tables, view_conditions
from bot.db.database import Transaction
from bot.db.runs import parse_origin, read_names
from bot.db.saved_views import SavedView
from bot.db.sql_text import each_value_sql, fetch_rows, fetch_scalar
from bot.db.tables import CHILD, PARENT, PLAN_ONLY, SINGLE
from bot.db.time_counts import CountedTimes
from bot.model.host_patterns import (
    compute_sort_range,
    convert_to_sql_like,
    is_pattern,
    matches_pattern,
)
from bot.model.run import (
    NEEDS_ATTENTION,
    Decision,
    RequestOrigin,
    Run,
    State,
    format_title,
    get_run_status,
    split_areas,
)
from bot.model.schedule import ScheduleTiming
from bot.model.times import DAY
from bot.model.waiting import Waiting, parse_waiting

# How many runs are read for a page: few at first, because most filters match enough of them.
_WINDOWS = (400, 20_000)
# Words are in another table, so a search by words reads fewer runs: it looks up the words of each
# run, or (even slower) the run of each word.
_PROBED_WINDOWS = (1_000,)
_WORD_WINDOWS = (400, 2_000)
# Among so few runs, those of several hosts or states are read in order if some are known to match.
_DENSE = 60_000
# A pattern usually matches many hosts, so the newest runs usually contain enough of theirs.
_NEAR = 8_000
# For more hosts than this, the newest runs of all hosts are read.
_MOST_HOSTS = 300
# A word that this many runs have is checked last.
_COMMON = 1_000
# How many runs are read at most to count them. Where each is looked up, a tenth.
MAX_COUNTED = 200_000
# How much later than a higher number a lower one may be dated, because clocks are set back.
SLACK = 3_600_000_000


@dataclass(frozen=True)
class RunFilter:
    """Which runs to find; None means any.

    A request for several hosts is one result. A search by host or text finds its child runs
    instead. A search by area finds a check on hosts of several areas by each of them.
    """

    host: str | None = None
    """A name or a pattern such as `web*`."""
    person: str | None = None
    runbook: str | None = None
    states: frozenset[str] = frozenset()
    """States, and `needs attention`: succeeded runs whose report found a problem."""
    since: int | None = None
    """Requested since then, in microseconds since 1970, UTC."""
    until: int | None = None
    """Requested until then, in microseconds since 1970, UTC."""
    before: int | None = None
    """Only runs with a lower number: the start of an older page."""
    area: str | None = None
    text: Sequence[str] = ()
    """Words that all occur in the values (also as `device=sdb`), reason, summary or output."""


@dataclass(frozen=True)
class Page:
    """A page of runs. It may hold fewer than requested although older ones match."""

    runs: list[Run]
    older: int | None
    """`before` of the next page; None if there is none."""


@dataclass(frozen=True)
class _Walk:
    """A way to read runs by an index."""

    index: str
    column: str
    """The first column of the index; "" to read all runs, "word" to read the index of words."""
    values: Sequence[str]
    """The values of the column."""
    rest: Sequence[str]
    """The other conditions, as SQL."""
    given: Mapping[str, object]
    """The parameters that they name."""


def search_runs(tx: Transaction, run_filter: RunFilter, *, most: int = 50) -> Page:
    """Return a page of runs, the newest first, without plans and reports."""
    found, older = find_page_numbers(tx, run_filter, most)
    return Page(runs.list_runs(tx, found), older)


def find_newest_runs(tx: Transaction, run_filter: RunFilter, *, most: int = 50) -> list[Run]:
    """Return the newest matching runs with their plans, however old they are."""
    return runs.get_runs(tx, find_run_numbers(tx, run_filter, most=most))


def find_run_numbers(tx: Transaction, run_filter: RunFilter, *, most: int) -> list[int]:
    """Return the numbers of the newest matching runs, however old they are."""
    found: list[int] = []
    while True:
        more, older = find_page_numbers(tx, run_filter, most - len(found))
        found += more
        if older is None or len(found) >= most:
            return found
        run_filter = replace(run_filter, before=older)


def list_runs_spanning(
    tx: Transaction, since: int, until: int, unfinished: Collection[State], *, most: int
) -> list[int]:
    """Return the numbers of runs that started before and ended after, or have not ended.

    since, until: in microseconds since 1970, UTC. Those that ended more than a day later are left
    out. unfinished: the states of those that have not ended. most: so many that ended, and so many
    in each of these states.
    """
    column = tables.run.c
    ended = select(column.id).where(
        column.ended_at > until, column.ended_at <= until + DAY, column.started_at < since
    )
    found = list(tx.sql.execute(ended.limit(most)).scalars())
    running = select(column.id).where(
        column.fan_out_role != tables.PARENT, column.started_at < since
    )
    newest = running.order_by(column.id.desc()).limit(most)
    for state in unfinished:
        # One query for each state uses the index: hardly any run is in one of these states.
        found += tx.sql.execute(newest.where(column.state == state.value)).scalars()
    return found


def find_request_times(tx: Transaction, run_filter: RunFilter) -> CountedTimes | None:
    """Return the request times of the matching runs, to count them; None if there are none.

    So many runs are read at most that a count takes a fraction of a second.
    """
    bounds = _find_bounds(tx, run_filter)
    if bounds is None:
        return None
    floor = None
    if _is_hidden(tx, run_filter):
        walk = _build_own_walk(tx, run_filter)
    else:
        walk = _choose_walk(tx, run_filter)
        if walk is None:
            return None
        is_quick = walk.column != "word" and view_conditions.can_view_everything(tx)
        most = MAX_COUNTED if is_quick else MAX_COUNTED // 10
        floor = _find_floor(tx, walk, bounds, most)
    bounds = floor or bounds[0], bounds[1]
    sql, given = _select_runs(walk, walk.rest, bounds, column="requested_at")
    return CountedTimes(sql, given, is_complete=floor is None)


def find_page_numbers(
    tx: Transaction, run_filter: RunFilter, most: int
) -> tuple[list[int], int | None]:
    """Return the numbers of the runs of a page, the newest first, and `before` of the next."""
    bounds = _find_bounds(tx, run_filter)
    if bounds is None:
        return [], None
    if _is_hidden(tx, run_filter):
        # Not by an index: how far back it had to read would reveal how many hidden runs there are.
        walk = _build_own_walk(tx, run_filter)
        query = _build_query(walk, walk.rest, bounds, "id DESC", most + 1)
        found = [number for (number,) in fetch_rows(tx, *query)]
        return found[:most], found[most - 1] if len(found) > most else None
    near = _find_newest_of_pattern(tx, run_filter, bounds, most + 1)
    if len(near) > most:
        return near[:most], near[most - 1]
    walk = _choose_walk(tx, run_filter)
    return ([], None) if walk is None else _read_walk(tx, run_filter, bounds, walk, most)


def _is_hidden(tx: Transaction, run_filter: RunFilter) -> bool:
    """Return whether the rules hide all matching runs but the person's own."""
    if view_conditions.can_view_everything(tx):
        # Without a condition there are no own runs to search for.
        return False
    if run_filter.host is None or not is_pattern(run_filter.host):
        return view_conditions.is_hidden(tx, host=run_filter.host, words=run_filter.runbook)
    hosts = list_known_hosts(tx, "run", run_filter.host)
    return all(
        view_conditions.is_hidden(tx, host=host, words=run_filter.runbook) for host in hosts
    )


def _read_walk(
    tx: Transaction, run_filter: RunFilter, bounds: tuple[int, int], walk: _Walk, most: int
) -> tuple[list[int], int | None]:
    """Return the numbers that a walk finds, and `before` of the next page."""
    windows = _PROBED_WINDOWS if run_filter.text else _WINDOWS
    if walk.column == "word":
        windows = _WORD_WINDOWS
    found: list[int] = []
    floor = None
    for window in windows:
        if len(walk.values) > 1:
            floor = _find_floor(tx, walk, bounds, window)
            found = _read_several_values(tx, walk, (floor, *bounds), most + 1)
        else:
            found = _read_one_value(tx, walk, bounds, window, most + 1)
        if len(found) > most:
            return found[:most], found[most - 1]
        if len(walk.values) <= 1:
            # Only needed if the page is not full.
            floor = _find_floor(tx, walk, bounds, window)
        if floor is None:
            return found, None
    return found, floor


def _find_floor(tx: Transaction, walk: _Walk, bounds: tuple[int, int], window: int) -> int | None:
    """Return the number down to which *window* runs are read; None if there are fewer."""
    if len(walk.values) > 1:
        return _find_highest_floor(tx, walk, bounds, max(window // len(walk.values), 50))
    return fetch_scalar(tx, *_build_query(walk, (), bounds, "id DESC", 1, window))


def _build_own_walk(tx: Transaction, run_filter: RunFilter) -> _Walk:
    """Return the way to the matching runs that the person requested, edited or decided."""
    pattern = (
        run_filter.host if run_filter.host is not None and is_pattern(run_filter.host) else None
    )
    rest, given = _build_conditions(tx, run_filter, pattern)
    host = None if pattern else run_filter.host
    known = {"host": host, "requested_by": run_filter.person, "runbook": run_filter.runbook}
    exact = {column: value for column, value in known.items() if value is not None}
    areas = {f"area{n}": area for n, area in enumerate(_list_areas(tx, run_filter))}
    words = {f"word{n}": word for n, word in enumerate(run_filter.text)}
    fits = [f"run.{column} = :{column}" for column in exact] or ["1 = 1"]
    own = view_conditions.OWN_RUNS_SQL.format(fits=_join_conditions(fits))
    # Written so that SQLite uses the numbers and not the indexes of these columns.
    same = [f"CASE WHEN run.{column} = :{column} THEN 1 ELSE 0 END = 1" for column in exact]
    rest += [f"run.id IN ({own})", *same]
    rest += [f"run.area IN ({_list_parameters('area', len(areas))})"] if areas else []
    rest += [_HAS_WORD.format(n=n) for n in range(len(words))]
    return _Walk("", "", [], rest, given | exact | areas | words)


def _find_newest_of_pattern(
    tx: Transaction, run_filter: RunFilter, bounds: tuple[int, int], limit: int
) -> list[int]:
    """Return the runs of a host pattern among the newest of all; none with other filters."""
    is_only_filter = not (
        run_filter.person or run_filter.runbook or run_filter.area or run_filter.text
    )
    if not is_only_filter or run_filter.host is None or not is_pattern(run_filter.host):
        return []
    walk = _Walk("ix_run_newest", "", [], *_build_conditions(tx, run_filter, run_filter.host))
    lowest = f"(SELECT max(id) - {_NEAR} FROM run WHERE id < :beyond)"  # noqa: S608 - a number of ours
    query = _build_query(walk, walk.rest, bounds, "id DESC", limit, lowest=lowest)
    return [number for (number,) in fetch_rows(tx, *query)]


def _read_one_value(
    tx: Transaction, walk: _Walk, bounds: tuple[int, int], window: int, limit: int
) -> list[int]:
    """Return the matching runs among the newest *window* runs with one value."""
    floor, _ = _build_query(walk, (), bounds, "id DESC", 1, window)
    # With a second lower bound the database would read the index down to that one.
    lowest = f"coalesce(({floor}), :lowest)"
    query = _build_query(walk, walk.rest, bounds, "id DESC", limit, lowest=lowest)
    return [number for (number,) in fetch_rows(tx, *query)]


def _read_several_values(
    tx: Transaction, walk: _Walk, bounds: tuple[int | None, int, int], limit: int
) -> list[int]:
    """Return the matching runs with several values, down to a floor if there is one."""
    floor, lowest, beyond = bounds
    # `id + 0`: few runs match, so sorting them is faster than reading all runs in order.
    order = "id + 0 DESC" if floor is None or beyond - floor > _DENSE else "id DESC"
    query = _build_query(walk, walk.rest, (floor or lowest, beyond), order, limit)
    return [number for (number,) in fetch_rows(tx, *query)]


def _find_bounds(tx: Transaction, run_filter: RunFilter) -> tuple[int, int] | None:
    """Return the range of numbers of the runs, without its end; None if it is empty."""
    lowest, beyond = 0, run_filter.before or 2**31 - 1
    if run_filter.since is not None:
        first = get_first_number_since(tx, run_filter.since)
        if first is None:
            return None
        lowest = first
    if run_filter.until is not None:
        query = (
            "SELECT id FROM run WHERE requested_at <= :until "
            "ORDER BY requested_at DESC, id DESC LIMIT 1"
        )
        last = fetch_scalar(tx, query, {"until": run_filter.until + SLACK})
        if last is None:
            return None
        beyond = min(beyond, last + 1)
    return lowest, beyond


def get_first_number_since(tx: Transaction, since: int) -> int | None:
    """Return a lower limit of the numbers of runs requested since then; None if there are none."""
    query = "SELECT id FROM run WHERE requested_at >= :since ORDER BY requested_at, id LIMIT 1"
    return fetch_scalar(tx, query, {"since": since - SLACK})


def _choose_walk(tx: Transaction, run_filter: RunFilter) -> _Walk | None:
    """Choose the index that leaves the fewest runs to read. None if nothing can match."""
    pattern = (
        run_filter.host if run_filter.host is not None and is_pattern(run_filter.host) else None
    )
    areas = _list_areas(tx, run_filter)
    filters: list[tuple[str, str, str | None]] = [
        ("ix_run_host", "host", None if pattern else run_filter.host),
        ("ix_run_person", "requested_by", run_filter.person),
        ("ix_run_runbook", "runbook", run_filter.runbook),
        ("ix_run_area", "area", run_filter.area),
    ]
    known = [(index, column, value) for index, column, value in filters if value is not None]
    rest, given = _build_conditions(tx, run_filter, pattern)
    given |= {column: value for _, column, value in known}
    given |= {f"area{n}": area for n, area in enumerate(areas)}
    in_areas = f"run.area IN ({_list_parameters('area', len(areas))})"
    also = [in_areas if by == "area" else f"run.{by} = :{by}" for _, by, _ in known]
    if run_filter.text:
        # For a single word without other filters, the index of words is always used.
        is_only_word = not known and len(run_filter.text) == 1
        counts = {word: 0 if is_only_word else _count_runs(tx, word) for word in run_filter.text}
        given |= {f"word{n}": word for n, word in enumerate(counts)}
        has = {word: _HAS_WORD.format(n=n) for n, word in enumerate(counts)}
        rarest, *others = sorted(counts, key=lambda word: counts[word])
        if counts[rarest] < _COMMON or not known:
            rest += also
            return _Walk("", "word", [rarest], [*rest, *(has[word] for word in others)], given)
        # Common words leave more runs to read than the host or the requester.
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
    elif run_filter.states:
        return _Walk("ix_run_state", "state", _list_states(run_filter), rest, given)
    return _Walk("ix_run_newest", "", [], rest, given)


def _list_areas(tx: Transaction, run_filter: RunFilter) -> Sequence[str]:
    """Return the values of the area column that contain an area: checks may be in several."""
    if run_filter.area is None:
        return []
    if run_filter.host is not None or run_filter.text:
        # The search finds child runs, each of which is in one area.
        return [run_filter.area]
    known = [area for (area,) in fetch_rows(tx, each_value_sql("run", "area"), {})]
    combined = [
        one for one in known if one != run_filter.area and run_filter.area in split_areas(one)
    ]
    return [run_filter.area, *combined]


# The upper bound is redundant, but keeps PostgreSQL from reading each word from the newest run.
_HAS_WORD = (
    "EXISTS (SELECT 1 FROM search_word AS w{n} "
    "WHERE w{n}.word = :word{n} AND w{n}.run = run.id AND w{n}.run < :beyond)"
)


def _build_conditions(
    tx: Transaction, run_filter: RunFilter, pattern: str | None
) -> tuple[list[str], dict[str, object]]:
    by_child = run_filter.host is not None or bool(run_filter.text)
    roles = [SINGLE, CHILD] if by_child else [SINGLE, PARENT]
    if State.PLANNED in run_filter.states:
        roles += [role + PLAN_ONLY for role in roles]
    rest = [f"run.fan_out_role IN ({', '.join(map(str, roles))})"]
    viewable = view_conditions.runs_condition(tx)
    rest += [viewable.sql] if viewable.sql else []
    given: dict[str, object] = {**viewable.given}
    if run_filter.states:
        states = _list_states(run_filter)
        given |= {f"s{n}": state for n, state in enumerate(states)}
        rest.append(f"run.state IN ({_list_parameters('s', len(states))})")
        # Of the runs that succeeded, some need attention: that is a status of its own.
        wanted = {State.SUCCEEDED, NEEDS_ATTENTION} & run_filter.states
        if len(wanted) == 1:
            unwell = (
                "run.needs_attention" if NEEDS_ATTENTION in wanted else "NOT run.needs_attention"
            )
            rest.append(f"({unwell} OR run.state != '{State.SUCCEEDED}')")
    if run_filter.since is not None:
        given["since"] = run_filter.since
        rest.append("run.requested_at >= :since")
    if run_filter.until is not None:
        given["until"] = run_filter.until
        rest.append("run.requested_at <= :until")
    if pattern is not None:
        given["like"] = convert_to_sql_like(pattern)
        rest.append("run.host LIKE :like ESCAPE '\\'")
    return rest, given


def _list_states(run_filter: RunFilter) -> list[str]:
    """Return the states that match the filter."""
    found = {State.SUCCEEDED if one == NEEDS_ATTENTION else one for one in run_filter.states}
    return sorted(str(one) for one in found)


def _list_parameters(letter: str, count: int) -> str:
    return ", ".join(f":{letter}{n}" for n in range(count))


def _build_query(
    walk: _Walk,
    rest: Sequence[str],
    bounds: tuple[int, int],
    order: str,
    limit: int,
    skip: int = 0,
    lowest: str = ":lowest",
) -> tuple[str, Mapping[str, object]]:
    """Return the SQL for the numbers of a walk between the bounds, and its parameters.

    lowest: SQL for the lower bound.
    """
    sql, given = _select_runs(walk, rest, bounds, lowest=lowest)
    if walk.column == "word":
        order = "run DESC"
    return f"{sql} ORDER BY {order} LIMIT {limit} OFFSET {skip}", given


def _select_runs(
    walk: _Walk,
    rest: Sequence[str],
    bounds: tuple[int, int],
    *,
    column: str = "",
    lowest: str = ":lowest",
) -> tuple[str, Mapping[str, object]]:
    """Return the SQL for all runs of a walk, and its parameters.

    column: a time to select, as `at`; "" selects the numbers.
    """
    given = {**walk.given, "lowest": bounds[0], "beyond": bounds[1]}
    given |= {f"v{n}": value for n, value in enumerate(walk.values)}
    between = f"{{0}} >= {lowest} AND {{0}} < :beyond"
    if walk.column == "word":
        what = f"(SELECT {column} FROM run WHERE id = search_word.run) AS at" if column else "run"  # noqa: S608 - ours
        rest_sql = _join_conditions(rest)
        fits = f"EXISTS (SELECT 1 FROM run WHERE run.id = search_word.run AND {rest_sql})"  # noqa: S608 - ours
        conditions = ["search_word.word = :v0", between.format("search_word.run")]
        conditions += [fits] if rest else []
        return f"SELECT {what} FROM search_word WHERE {_join_conditions(conditions)}", given  # noqa: S608 - ours
    what = f"{column} AS at" if column else "id"
    one_of = f"run.{walk.column} IN ({_list_parameters('v', len(walk.values))})"
    conditions = [*([one_of] if walk.column else ()), *rest, between.format("run.id")]
    return f"SELECT {what} FROM run WHERE {_join_conditions(conditions)}", given  # noqa: S608 - ours


def _join_conditions(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions)


def _find_highest_floor(
    tx: Transaction, walk: _Walk, bounds: tuple[int, int], each: int
) -> int | None:
    """Return the number down to which the runs of every value are read."""
    # SQLite would read all runs for a value that it considers frequent.
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
    """Return the hosts of a table that match a pattern, also those no longer in the inventory."""
    first, beyond = compute_sort_range(pattern)
    end = f"AND {table}.host < :beyond" if beyond else ""
    query = each_value_sql(table, "host", "WHERE host >= :first", end)
    known = fetch_rows(tx, query, {"first": first, "beyond": beyond})
    return [host for (host,) in known if matches_pattern(host, pattern)]


def _count_runs(tx: Transaction, word: str) -> int:
    """Return how many runs have a word, counting only until it is common."""
    query = (
        "SELECT count(*) FROM "  # noqa: S608 - a number of ours
        f"(SELECT 1 AS one FROM search_word WHERE word = :word LIMIT {_COMMON}) AS enough"
    )
    return fetch_scalar(tx, query, {"word": word})


_RUN = tables.run.c


class ListedRun(NamedTuple):
    """One run of a list. Times are microseconds since 1970, UTC; None means not yet."""

    id: int
    state_value: str
    host: str
    area: str
    requested_by: str
    reason: str
    requested_at: int
    started_at: int | None
    ended_at: int | None
    summary: str
    waiting: Waiting | None
    runbook: str
    kind: str
    request: str
    undo_of: int | None
    all_hosts: str
    timing: str | None
    needs_attention: bool
    origin_json: str

    @property
    def state(self) -> State:
        return State(self.state_value)

    @property
    def origin(self) -> RequestOrigin:
        return parse_origin(self.origin_json)

    @property
    def status(self) -> str:
        return get_run_status(self.state, needs_attention=self.needs_attention)

    @property
    def title(self) -> str:
        timing = ScheduleTiming.from_json(self.timing) if self.timing else None
        return format_title(self.request or self.runbook, undo_of=self.undo_of, timing=timing)

    @property
    def hosts(self) -> Sequence[str]:
        """The hosts of a parent run; () for any other run."""
        return read_names(self.all_hosts)


# The fields whose columns have another name.
_COLUMN_NAMES = {
    "state_value": "state",
    "all_hosts": "hosts",
    "origin_json": "origin",
}
_COLUMNS = [_RUN[_COLUMN_NAMES.get(name, name)] for name in ListedRun._fields]
_LIST = (
    select(*_COLUMNS)
    .order_by(_RUN.id.desc())
    .where(_RUN.id.in_(bindparam("wanted", expanding=True)))
)


@dataclass(frozen=True)
class RunListing:
    """A page of runs for a list. It may hold fewer than requested although older ones match."""

    runs: Sequence[ListedRun]
    older: int | None
    """`before` of the next page; None if there is none."""
    decisions: Mapping[int, Sequence[Decision]]
    """The decisions by run."""
    views: Sequence[SavedView]
    """The saved views of the reader."""
    parent_states: Mapping[int, State]
    """The states of the parents of pending child runs, by the numbers of the child runs."""


def list_run_page(
    tx: Transaction, run_filter: RunFilter | None, *, most: int, whose: str
) -> RunListing:
    """Return a page of runs for a list, the newest first.

    run_filter: None for a page without runs. whose: the reader.
    """
    found, older = ([], None) if run_filter is None else find_page_numbers(tx, run_filter, most)
    rows = tx.sql.execute(_LIST, {"wanted": found}).all()
    listed = [_read_listed_run(tx, row) for row in rows]
    return RunListing(
        listed,
        older,
        runs.list_decisions_on(tx, found),
        saved_views.list_views(tx, whose),
        runs.get_parent_states(tx, listed),
    )


def _read_listed_run(tx: Transaction, row: Row[Any]) -> ListedRun:
    """Return a run of a list as the person may read it."""
    return ListedRun._make(row)._replace(
        summary=view_conditions.show_references(tx, row.summary),
        waiting=view_conditions.show_waiting(tx, parse_waiting(row.waiting)),
    )
