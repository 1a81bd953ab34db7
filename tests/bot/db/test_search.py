"""Search of runs by all their properties, with a bounded cost for each page.

What is counted here is what time would show on ten million runs: which index a page walks, that
nothing is sorted that an index has in order, and how many questions the database is asked.
"""

import itertools
import random
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, inspect

from bot.audit import events
from bot.audit.change_log import EntryDraft, append_entries, append_entry
from bot.audit.event_type import UnknownEvent
from bot.audit.verification import verify_log
from bot.db import outputs, runs, search, tables
from bot.db import search_words as word_index
from bot.db.database import Database, Transaction
from bot.db.migrations import is_own_table
from bot.db.search import RunFilter
from bot.db.time_counts import count_by_step, get_period
from bot.model.run import NEEDS_ATTENTION, RequestOrigin, Run, State
from bot.model.signing import SigningKey
from bot.queries import log_search
from bot.queries.log_search import EntryFilter
from tests.bench import fill_database
from tests.bot.databases import (
    DATABASES,
    create_database,
    create_postgresql_database,
    create_sqlite_database,
)

HOSTS = ["web1", "web2", "web-db", "lb1", "lb2", "we_b"]


def add(tx: Transaction, **changes: Any) -> Run:
    given: dict[str, Any] = {
        "runbook": "toy set",
        "kind": "change",
        "values": {"host": changes.get("host", "lb1"), "name": "lamp", "value": "on"},
        "host": "lb1",
        "area": "edge",
        "requested_by": "dora",
        "origin": RequestOrigin("web"),
    }
    return runs.add_run(tx, runs.NewRun(**(given | changes)))


def answered(tx: Transaction, run: Run, text: str) -> None:
    entry = append_entry(tx, UnknownEvent(kind="step succeeded"), run=run.id, host=run.host)
    outputs.store_outputs(tx, 1, [(entry.seq, run.id, outputs.prepare_output(tx, text))])


def find_run_numbers(tx: Transaction, **wanted: Any) -> list[int]:
    return [run.id for run in search.find_newest_runs(tx, RunFilter(**wanted))]


def test_migrated_schema_matches_the_table_definitions(database: Database):
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": is_own_table})
        assert compare_metadata(context, tables.metadata) == []
        indexes = {index["name"]: index for index in inspect(connection).get_indexes("run")}
        # The comparison does not look at conditions of indexes.
        for index, column in (("ix_run_edited", "editors"), ("ix_run_parent_id", "parent")):
            options = indexes[index].get("dialect_options", {})
            assert column in str(options[f"{connection.dialect.name}_where"])


def test_run_is_found_by_host_area_person_runbook_values_and_output(database: Database):
    with database.transaction() as tx:
        other = add(tx)
        run = add(
            tx,
            runbook="disk set",
            host="web1",
            area="stores",
            requested_by="adam",
            values={"host": "web1", "device": "sdb", "address": "203.0.113.9"},
            reason="the backup is slow",
        )
        answered(tx, run, "mq-deadline [none] kyber\ntank/home is DEGRADED: see /dev/sdb")
        for wanted in (
            {"host": "web1"},
            {"host": "we*"},
            {"host": "?eb1"},
            {"area": "stores"},
            {"person": "adam"},
            {"runbook": "disk set"},
            {"text": ["sdb"]},
            {"text": ["device=sdb"]},
            {"text": ["203.0.113.9"]},
            {"text": ["backup", "slow"]},
            {"text": ["degraded"]},
            {"text": ["tank/home"]},
            {"text": ["kyber"], "host": "web*", "area": "stores", "person": "adam"},
        ):
            assert find_run_numbers(tx, **wanted) == [run.id], wanted
        for wanted in (
            {"host": "web2"},
            {"host": "lb?1"},
            {"text": ["device=sdc"]},
            {"text": ["kyber"], "host": "lb1"},
            {"text": ["kyber", "lamp"]},
            {"text": ["name=lamp"], "area": "stores"},
        ):
            assert find_run_numbers(tx, **wanted) == [], wanted
        assert find_run_numbers(tx, text=["name=lamp"]) == [other.id]


def test_host_pattern_supports_only_stars_and_question_marks(database: Database):
    with database.transaction() as tx:
        numbers_by_host = {host: add(tx, host=host).id for host in HOSTS}
        assert find_run_numbers(tx, host="we_*") == [numbers_by_host["we_b"]]
        assert find_run_numbers(tx, host="web[12]") == []
        assert find_run_numbers(tx, host="web?") == [
            numbers_by_host["web2"],
            numbers_by_host["web1"],
        ]
        assert find_run_numbers(tx, host="*") == sorted(numbers_by_host.values(), reverse=True)
        assert find_run_numbers(tx, host="%b1") == []


def test_run_is_found_by_the_words_of_its_summary(database: Database):
    with database.transaction() as tx:
        run = add(tx)
        runs.move_run(tx, run, State.FAILED, summary="Step 1 failed: No space left")
        assert find_run_numbers(tx, text=["space"]) == [run.id]


def test_run_is_not_found_by_erased_output_but_by_its_reason(database: Database):
    with database.transaction() as tx:
        run = add(tx, reason="lamp of the harbour")
        answered(tx, run, "the lamp spilled s3cret.example over the harbour")
        assert find_run_numbers(tx, text=["s3cret.example"]) == [run.id]
        outputs.erase_output(tx, run.id)
        assert find_run_numbers(tx, text=["s3cret.example"]) == []
        assert find_run_numbers(tx, text=["spilled"]) == []
        assert find_run_numbers(tx, text=["harbour"]) == [run.id]


def test_without_deleting_its_words_erased_output_is_found(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """The twin: without it, words of what was erased would stay."""

    def forget(_tx: Transaction, _run: int, _words: Sequence[str]) -> None:
        return

    monkeypatch.setattr(word_index, "delete_words", forget)
    with database.transaction() as tx:
        run = add(tx)
        answered(tx, run, "spilled")
        outputs.erase_output(tx, run.id)
        assert find_run_numbers(tx, text=["spilled"]) == [run.id]


def test_parent_run_is_listed_and_child_runs_are_found_by_host(database: Database):
    with database.transaction() as tx:
        whole = add(tx, hosts=["lb1", "lb2"])
        parts = [add(tx, host=host, parent=whole.id) for host in ("lb1", "lb2")]
        answered(tx, parts[1], "overheated")
        assert find_run_numbers(tx) == [whole.id]
        assert find_run_numbers(tx, person="dora") == [whole.id]
        assert find_run_numbers(tx, host="lb1") == [parts[0].id]
        assert find_run_numbers(tx, host="lb*") == [parts[1].id, parts[0].id]
        assert find_run_numbers(tx, text=["overheated"]) == [parts[1].id]


def test_pages_of_random_filters_match_a_full_scan(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """Windows so small that most pages end at one, for words that are common and that are not."""
    monkeypatch.setattr(search, "_WINDOWS", (5, 60))
    monkeypatch.setattr(search, "_WORD_WINDOWS", (5, 60))
    dice = random.Random(2)  # noqa: S311 - a table of cases
    with database.transaction() as tx:
        made = _add_random_runs(tx, dice)
        for number in range(60):
            monkeypatch.setattr(search, "_COMMON", (5, 1_000)[number % 2])
            wanted = _draw_filter(dice)
            assert _list_all_pages(tx, wanted) == (expected := _filter_in_python(made, wanted)), (
                wanted
            )
            assert _count_in_histogram(tx, wanted) == len(expected), wanted
        monkeypatch.setattr(search, "MAX_COUNTED", 99)
        times = search.find_request_times(tx, RunFilter())
        assert times
        assert not times.is_complete
        assert (get_period(tx, times) or (0, 0, 0))[2] == 100


def _count_in_histogram(tx: Transaction, wanted: RunFilter) -> int:
    """Return how many runs a histogram counts, and that its steps are of all of them."""
    times = search.find_request_times(tx, wanted)
    period = get_period(tx, times) if times else None
    if times is None or period is None:
        return 0
    assert times.is_complete
    begin, end, total = period
    steps = count_by_step(tx, times, first=begin, step=max((end - begin) // 3, 1))
    assert sum(steps.values()) == total
    return total


def _add_random_runs(tx: Transaction, dice: random.Random) -> list[Run]:
    made: list[Run] = []
    for _ in range(300):
        run = add(
            tx,
            host=dice.choice(HOSTS),
            area=dice.choice(["edge", "stores"]),
            requested_by=dice.choice(["dora", "adam", "olga"]),
            runbook=dice.choice(["toy set", "toy show"]),
            values={"name": dice.choice(["lamp", "horn"])},
        )
        if dice.random() < 0.3:
            run = runs.move_run(tx, run, dice.choice([State.FAILED, State.REFUSED, State.PENDING]))
        elif dice.random() < 0.3:
            run = runs.move_run(tx, run, State.SUCCEEDED, needs_attention=dice.random() < 0.5)
        made.append(run)
    return made[::-1]


def _draw_filter(dice: random.Random) -> RunFilter:
    known = [State.PLANNING, State.FAILED, State.REFUSED, State.SUCCEEDED, NEEDS_ATTENTION]
    states = dice.sample(known, k=dice.choice([1, 2]))
    given: dict[str, Any] = {
        "host": dice.choice([*HOSTS, "web*", "*"]),
        "area": "edge",
        "person": dice.choice(["dora", "adam"]),
        "runbook": "toy show",
        "states": frozenset(states),
        "text": ["name=lamp"],
    }
    names = dice.sample(sorted(given), k=dice.choice([1, 2, 3]))
    return RunFilter(**{name: given[name] for name in names})


def _list_all_pages(tx: Transaction, wanted: RunFilter) -> list[int]:
    run_numbers: list[int] = []
    before = None
    while True:
        one = search.search_runs(tx, replace(wanted, before=before), most=7)
        run_numbers += [run.id for run in one.runs]
        if one.older is None:
            return run_numbers
        before = one.older


def _filter_in_python(made: Sequence[Run], wanted: RunFilter) -> list[int]:
    pattern = re.escape(wanted.host or "*").replace(r"\*", ".*")
    return [
        run.id
        for run in made
        if re.fullmatch(pattern, run.host)
        and wanted.area in {None, run.area}
        and wanted.person in {None, run.requested_by}
        and wanted.runbook in {None, run.runbook}
        and (not wanted.states or wanted.states & {run.status})
        and (not wanted.text or run.values["name"] == "lamp")
    ]


FILTERS: dict[str, dict[str, Any]] = {
    "newest": {},
    "a page further back": {"before": 200},
    "host": {"host": "web1"},
    "pattern": {"host": "web*"},
    "area": {"area": "edge"},
    "person": {"person": "dora"},
    "runbook": {"runbook": "toy set"},
    "state": {"states": frozenset({State.FAILED})},
    "states": {"states": frozenset({State.FAILED, State.REFUSED})},
    "attention": {"states": frozenset({NEEDS_ATTENTION})},
    "attention and a state": {"states": frozenset({NEEDS_ATTENTION, State.FAILED})},
    "attention of a host": {"states": frozenset({NEEDS_ATTENTION}), "host": "web1"},
    "text": {"text": ["name=lamp"]},
    "texts": {"text": ["name=lamp", "lamp"]},
    "since": {"since": 1},
    "until": {"until": 2**60},
    "all": {
        "host": "web1",
        "area": "edge",
        "person": "dora",
        "runbook": "toy set",
        "states": frozenset({State.FAILED, State.REFUSED}),
        "since": 1,
        "until": 2**60,
        "before": 200,
    },
    "all and text": {"text": ["name=lamp"], "host": "web*", "area": "edge", "since": 1},
}
# Of several values, what a window lets through is sorted: so many at most, however many there are.
MERGED = {"pattern", "states", "attention and a state"}


@contextmanager
def record_statements(database: Database) -> Generator[list[tuple[str, Any]]]:
    """Collect every statement that the database is given meanwhile."""
    statements: list[tuple[str, Any]] = []

    def listen(
        _connection: object,
        _cursor: object,
        statement: str,
        given: Any,
        _context: object,
        _many: object,
    ) -> None:
        statements.append((statement, given))

    event.listen(database.engine, "before_cursor_execute", listen)
    try:
        yield statements
    finally:
        event.remove(database.engine, "before_cursor_execute", listen)


def plan(tx: Transaction, statement: str, given: Any) -> str:
    """Return how the database means to go about a statement, were the tables large."""
    if tx.sql.dialect.name == "sqlite":
        rows = tx.sql.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
        return "\n".join(row[3] for row in rows)
    for method in ("seqscan", "bitmapscan", "sort", "material", "hashjoin", "mergejoin"):
        tx.sql.exec_driver_sql(f"SET LOCAL enable_{method} = off")
    return "\n".join(row[0] for row in tx.sql.exec_driver_sql(f"EXPLAIN {statement}", given))


def list_full_scans(plan: str) -> list[str]:
    """Return what would take longer the more runs there are."""
    scans = re.compile(
        r"^SCAN (?!one\b|known\b|enough\b|some\b|\(|CONSTANT|anon)|Seq Scan", re.MULTILINE
    )
    return scans.findall(plan) + re.findall(r"TEMP B-TREE|\bSort\b", plan)


@pytest.fixture(params=DATABASES, scope="module")
def full_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Database]:
    """A database with runs of all kinds, for tests that only read."""
    database = create_database(request, tmp_path_factory.mktemp("full"))
    with database.transaction() as tx:
        _add_random_runs(tx, random.Random(3))  # noqa: S311 - a table of cases
    with database.engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE" if database.embedded else "VACUUM ANALYZE")
        connection.commit()
    yield database
    database.close()


@pytest.mark.parametrize("name", FILTERS)
def test_every_run_filter_walks_an_index_in_order(full_database: Database, name: str):
    with record_statements(full_database) as statements, full_database.reading() as tx:
        search.search_runs(tx, RunFilter(**FILTERS[name]), most=40)
    asked = [
        (statement, given)
        for statement, given in statements
        if " run" in statement or " search_word" in statement
    ]
    assert asked
    with full_database.reading() as tx:
        plans = [(statement, plan(tx, statement, given)) for statement, given in asked]
    slow = {statement: list_full_scans(one) for statement, one in plans if list_full_scans(one)}
    if name in MERGED:
        slow = {statement: what for statement, what in slow.items() if " IN (" not in statement}
    assert not slow, [one for statement, one in plans if statement in slow]


@pytest.mark.parametrize("name", ["attention", "attention of a host"])
def test_runs_that_need_attention_are_found_by_an_index_only_scan(
    full_database: Database, name: str
):
    """Nearly all that succeeded is well: each would cost a look of its own."""
    with record_statements(full_database) as statements, full_database.reading() as tx:
        search.find_page_numbers(tx, RunFilter(**FILTERS[name]), most=40)
    walks = [
        (statement, given) for statement, given in statements if "needs_attention" in statement
    ]
    assert walks
    with full_database.reading() as tx:
        for statement, given in walks:
            assert re.search("COVERING INDEX|Index Only Scan", plan(tx, statement, given))


def test_log_entries_of_an_area_are_found_by_the_index_on_runs(database: Database):
    """Not from the end of the log, where others may have written whatever there is."""
    with database.transaction() as tx:
        for n in range(300):
            run = add(tx, area="edge" if n < 100 else "stores")
            append_entry(tx, UnknownEvent(kind="requested"), run=run.id)
            append_entry(tx, events.Succeeded(), run=run.id)
        append_entries(tx, [EntryDraft(UnknownEvent(kind="noted")) for _ in range(5_000)])
    with database.engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE")
        connection.commit()
    with record_statements(database) as statements, database.reading() as tx:
        wanted = EntryFilter(run_filter=RunFilter(area="edge"))
        assert len(log_search.find_newest_entries(tx, wanted, limit=51)) == 51
    statement, given = next(
        (statement, given) for statement, given in statements if "FROM entry" in statement
    )
    with database.reading() as tx:
        assert "ix_entry_run_seq" in plan(tx, statement, given)


def test_query_without_an_index_is_found_to_scan(database: Database):
    """The twin: the plans are read closely enough to see it."""
    statement = "SELECT id FROM run WHERE reason = 'x' ORDER BY reason, summary"
    with database.reading() as tx:
        assert list_full_scans(plan(tx, statement, ()))


@pytest.mark.parametrize("name", FILTERS)
def test_run_page_takes_at_most_nine_queries(full_database: Database, name: str):
    counts: list[int] = []
    for most in (10, 40):
        with record_statements(full_database) as statements, full_database.reading() as tx:
            search.search_runs(tx, RunFilter(**FILTERS[name]), most=most)
        counts.append(sum("SELECT" in statement for statement, _ in statements))
    assert max(counts) <= 9


def test_search_for_an_absent_state_does_not_scan_all_runs(tmp_path: Path):
    """Counted, not timed: how many steps SQLite takes for it."""
    seal = SigningKey.create()
    database = create_sqlite_database(tmp_path / "keyturn.db", seal)
    fill_database.fill(database, 3_000, seal)
    rare = search.RunFilter(states=frozenset({State.UNKNOWN, State.WITHDRAWN}))
    with database.reading() as tx:
        steps = itertools.count()
        driver: Any = tx.sql.connection.driver_connection
        driver.set_progress_handler(lambda: next(steps) < 0, 10)
        assert search.search_runs(tx, rare).runs == []
        driver.set_progress_handler(None, 0)
        assert next(steps) * 10 < 1_000
    database.close()


@pytest.mark.real
def test_log_of_a_filled_database_verifies(request: pytest.FixtureRequest, tmp_path: Path):
    """What the benchmarks measure on is a log as the service writes it, on each database."""
    seal = SigningKey.create()
    for database in (
        create_sqlite_database(tmp_path / "keyturn.db", seal),
        create_postgresql_database(request.getfixturevalue("postgres"), seal),
    ):
        fill_database.fill(database, 3_000, seal)
        with database.reading() as tx:
            verification = verify_log(tx)
        assert (verification.entries, verification.broken) == (3_000, None)
        database.close()
