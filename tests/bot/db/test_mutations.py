"""Every inserted, deleted, reordered or edited row of the log is found, and nothing else is.

KEYTURN_TEST_MUTATIONS and KEYTURN_TEST_ENTRIES: how many mutations are tried, and on how long a
good log nothing may be found; 10000 and 1000000 are the full measure.
"""

import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from bot.audit import change_log, verification
from bot.audit.checkpoints import Checkpoint
from bot.audit.event_type import UnknownEvent
from bot.audit.verification import Verification
from bot.db.database import Database, Transaction
from tests.bot.databases import create_sqlite_database

MUTATIONS = int(os.environ.get("KEYTURN_TEST_MUTATIONS", "200"))
ENTRIES = int(os.environ.get("KEYTURN_TEST_ENTRIES", "5000"))
LENGTH = 40
COLUMNS = ("seq", "at", "kind", "run", "person", "host", "body", "hash")


def _write(database: Database, entries: int) -> Checkpoint:
    with database.transaction() as tx:
        verification.open_log(tx)
        for n in range(entries - 1):
            run = n % 7 or None
            change_log.append_entry(
                tx,
                UnknownEvent(kind="noted", facts={"n": n, "said": "naïve ☃"}),
                run=run,
                person="olga",
                host="lb1",
            )
        return verification.create_checkpoint(tx)


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Database, Checkpoint]]:
    """A log whose table somebody has rid of its keys, its constraints and its triggers."""
    directory: Path = tmp_path_factory.mktemp("loose")
    database = create_sqlite_database(directory / "keyturn.db")
    point = _write(database, LENGTH)
    with database.engine.connect() as connection:
        for statement in (
            "PRAGMA foreign_keys=OFF",
            "CREATE TABLE loose AS SELECT * FROM entry",
            "DROP TABLE entry",
            "ALTER TABLE loose RENAME TO entry",
        ):
            connection.exec_driver_sql(statement)
    yield database, point
    database.close()


def _list_rows(connection: Connection) -> list[tuple[Any, ...]]:
    columns = ", ".join(COLUMNS)
    query = text(f"SELECT {columns} FROM entry ORDER BY seq")  # noqa: S608 - names of columns, from above
    # 1 and 1.0 are the same to Python, and not to a hash.
    return [tuple((type(v), v) for v in row) for row in connection.execute(query)]


_PLACES = st.integers(1, LENGTH)
_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, LENGTH + 2)
_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
_VALUES = st.none() | _NUMBERS | _TEXTS | st.floats(allow_nan=False) | st.just("null")
_EDITS = st.tuples(st.just("edit"), _PLACES, st.sampled_from(COLUMNS), _VALUES)
_DELETES = st.tuples(st.just("delete"), _PLACES)
_SWAPS = st.tuples(st.just("swap"), _PLACES, _PLACES)
_INSERTS = st.tuples(st.just("insert"), _PLACES, _NUMBERS, st.sampled_from(COLUMNS), _VALUES)
_MUTATIONS = st.lists(_EDITS | _DELETES | _SWAPS | _INSERTS, min_size=1, max_size=3)


def _apply_mutation(connection: Connection, mutation: tuple[Any, ...]) -> None:
    kind, place, *more = mutation
    at = {"place": place}
    if kind == "edit":
        column, value = more
        statement = text(f"UPDATE entry SET {column} = :value WHERE seq = :place")  # noqa: S608 - names of columns, from above
        connection.execute(statement, {**at, "value": value})
    elif kind == "delete":
        connection.execute(text("DELETE FROM entry WHERE seq = :place"), at)
    elif kind == "swap":
        case = text("UPDATE entry SET seq = :place + :other - seq WHERE seq IN (:place, :other)")
        connection.execute(case, {**at, "other": more[0]})
    else:
        seq, column, value = more
        values = {name: name for name in COLUMNS} | {"seq": ":seq"} | {column: ":value"}
        chosen = ", ".join(values.values())
        names = ", ".join(values)
        rest = f"({names}) SELECT {chosen} FROM entry WHERE seq = :place"  # noqa: S608 - names of columns, from above
        copy = text(f"INSERT INTO entry {rest}")
        connection.execute(copy, {**at, "seq": seq, "value": value})


def _verify(connection: Connection, point: Checkpoint) -> Verification:
    return verification.verify_log(Transaction(connection, 0), witnesses=[point])


@settings(
    max_examples=MUTATIONS,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(mutations=_MUTATIONS)
def test_verification_finds_inserted_deleted_reordered_and_edited_entries(
    loose: tuple[Database, Checkpoint], mutations: list[tuple[Any, ...]]
):
    database, point = loose
    with database.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        try:
            before = _list_rows(connection)
            for mutation in mutations:
                _apply_mutation(connection, mutation)
            after = _list_rows(connection)
            verdict = _verify(connection, point)
        finally:
            connection.exec_driver_sql("ROLLBACK")
    assume(after != before)
    same = sum(1 for _ in _iterate_equal_rows(before, after))
    assert verdict.broken == same + 1, verdict.why


def _iterate_equal_rows(
    one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]
) -> Generator[None]:
    """Yield once for each row before the first one that differs."""
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return
        yield


def _get_hash(row: Sequence[Any]) -> str:
    return row[COLUMNS.index("hash")]


def test_without_the_hash_comparison_an_edited_entry_is_not_found(
    loose: tuple[Database, Checkpoint], monkeypatch: pytest.MonkeyPatch
):
    """The twin: without the comparison of hashes an edit is seen by nobody."""
    database, point = loose
    edit = ("edit", 5, "person", "adam")
    for guarded in (True, False):
        if not guarded:
            monkeypatch.setattr(change_log, "hash_entry", _get_hash)
        with database.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            _apply_mutation(connection, edit)
            broken = _verify(connection, point).broken
            connection.exec_driver_sql("ROLLBACK")
        assert broken == (5 if guarded else None)


def test_verification_finds_no_fault_in_an_unaltered_log(tmp_path: Path):
    database = create_sqlite_database(tmp_path / "keyturn.db")
    point = _write(database, ENTRIES)
    with database.reading() as tx:
        verdict = verification.verify_log(tx, witnesses=[point])
    assert (verdict.entries, verdict.broken) == (ENTRIES, None)
    database.close()
