"""A database is copied to another of either kind, completely or not at all."""

from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import select, text

from bot.audit import change_log, verification
from bot.audit.event_type import UnknownEvent
from bot.db import runs
from bot.db.database import Database, StoreUnavailable
from bot.maintenance import copy_database
from bot.model.run import RequestOrigin
from tests.bot.databases import (
    DATABASES,
    create_postgresql_database,
    create_sqlite_database,
    on_sqlite,
)
from tests.bot.harness import open_harness
from tests.toy import SetSwitch


@pytest.fixture
def full(tmp_path: Path, database: Database) -> Generator[Database]:
    """A database in which something was asked for, approved, done and refused."""
    with open_harness(tmp_path, database=database) as harness:
        with database.transaction() as tx:
            verification.open_log(tx)
        lamp = harness.request(SetSwitch(host="lb1", name="lamp", value="on"), reason="it is dark")
        harness.approve(lamp)
        harness.request(SetSwitch(host="lb1", name="fan", value="on"), person="stan")
        yield database


def all_rows(database: Database) -> dict[str, list[tuple[object, ...]]]:
    with database.reading() as tx:
        return {
            table.name: sorted((tuple(row) for row in tx.sql.execute(select(table))), key=repr)
            for table in copy_database.list_tables()
        }


@pytest.fixture(params=DATABASES)
def empty(
    request: pytest.FixtureRequest, tmp_path: Path, database: Database
) -> Generator[Database]:
    """Another database for the same log, of each kind."""
    if request.param == "sqlite":
        template = create_sqlite_database(tmp_path / "another.db")
    else:
        template = create_postgresql_database(request.getfixturevalue("postgres"))
    other = database.open_copy(template.engine.url.render_as_string(hide_password=False))
    template.close()
    yield other
    other.close()


# What depends on the database that is copied to, or on the one that is copied, alone.
to_each = on_sqlite
from_each = pytest.mark.parametrize("empty", ["sqlite"], indirect=True)


def copy_all_rows(source: Database, target: Database) -> int:
    with target.transaction() as tx:
        return copy_database.copy_rows(source, tx)


def test_copied_database_contains_every_row_and_its_log_verifies(full: Database, empty: Database):
    progress: list[int] = []
    with empty.transaction() as tx:
        rows = copy_database.copy_rows(full, tx, progress.append)
    assert all_rows(empty) == all_rows(full)
    assert rows == copy_database.count_rows(full) == sum(progress) > 30
    with empty.reading() as tx:
        verdict = verification.verify_log(tx)
    with full.reading() as tx:
        assert verdict == verification.verify_log(tx)
    assert verdict.broken is None


@to_each
def test_copied_database_continues_the_run_numbers(full: Database, empty: Database):
    copy_all_rows(full, empty)
    with empty.transaction() as tx:
        run = runs.add_run(tx, a_request())
        assert run.id == 3
        change_log.append_entry(tx, UnknownEvent(kind="requested"), run=run.id)
    with empty.transaction() as tx:
        copy_database.set_next_number(tx, "run", 1003)
        assert runs.add_run(tx, a_request()).id == 1003


@from_each
def test_copy_is_a_snapshot_while_others_commit(full: Database, empty: Database):
    before = all_rows(full)

    def meanwhile(_rows: int) -> None:
        with full.transaction() as tx:
            change_log.append_entry(
                tx, UnknownEvent(kind="requested"), run=runs.add_run(tx, a_request()).id
            )

    with empty.transaction() as tx:
        copy_database.copy_rows(full, tx, meanwhile)
    assert all_rows(empty) == before != all_rows(full)


@to_each
def test_copy_into_a_database_with_rows_is_refused(full: Database, empty: Database):
    with empty.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="here first"))
    before = all_rows(empty)
    with pytest.raises(copy_database.CopyError, match="it has rows in entry"):
        copy_all_rows(full, empty)
    assert all_rows(empty) == before


@to_each
def test_failed_copy_leaves_no_rows(full: Database, empty: Database):
    copied_first: list[int] = []

    def cut(rows: int) -> None:
        if copied_first:
            raise StoreUnavailable("the disk is full")
        copied_first.append(rows)

    with pytest.raises(StoreUnavailable), empty.transaction() as tx:
        copy_database.copy_rows(full, tx, cut)
    assert sum(copied_first)
    assert not any(all_rows(empty).values())


@from_each
def test_copy_with_an_unknown_table_is_refused(full: Database, empty: Database):
    with full.engine.begin() as connection:
        connection.execute(text("CREATE TABLE from_the_future (id INTEGER)"))
    with pytest.raises(
        copy_database.CopyError, match="from_the_future, which this version does not"
    ):
        copy_all_rows(full, empty)


def a_request() -> runs.NewRun:
    return runs.NewRun(
        runbook="toy switch",
        kind="change",
        values={"host": "lb1"},
        host="lb1",
        area="web",
        requested_by="dora",
        origin=RequestOrigin("web"),
    )
