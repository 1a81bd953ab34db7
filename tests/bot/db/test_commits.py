"""Transactions of several threads share one commit, or all of them fail."""

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from bot.audit import change_log
from bot.audit.event_type import UnknownEvent
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.model.signing import SigningKey
from tests.empty_database import create_empty_database

CROWD = 12


@pytest.fixture
def database(tmp_path: Path) -> Generator[Database]:
    create_empty_database(file := tmp_path / "log.db")
    database = Database(f"sqlite:///{file}", SigningKey.create())
    yield database
    database.close()


def _entries(database: Database) -> list[str]:
    """Return the kinds that are durable, as another connection sees them."""
    file = database.url.removeprefix("sqlite:///")
    with sqlite3.connect(file) as other:
        kinds = [kind for (kind,) in other.execute("SELECT kind FROM entry ORDER BY seq")]
    other.close()
    return kinds


def _wait_for_commits(database: Database, count: int) -> bool:
    end = time.monotonic() + 20
    while database.commits.waiting < count:
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def _write_together(
    database: Database, *works: Callable[[Transaction], None]
) -> list[Future[bool]]:
    """Have all of these written while one more has its turn; say of each whether it was durable
    as soon as it was over."""

    def write(work: Callable[[Transaction], None], n: int) -> bool:
        with database.shared_transaction() as tx:
            work(tx)
            change_log.append_entry(tx, UnknownEvent(kind=f"of {n}"))
        return f"of {n}" in _entries(database)

    with ThreadPoolExecutor(len(works)) as pool, database.transaction():
        written = [pool.submit(write, work, n) for n, work in enumerate(works)]
        assert _wait_for_commits(database, len(works))
    return written


def _write_nothing(_tx: Transaction) -> None:
    pass


def _raise_error(_tx: Transaction) -> None:
    raise ZeroDivisionError


def test_shared_commit_makes_every_transaction_durable(database: Database):
    counts: Counter[str] = Counter()

    def note(text: str) -> None:
        counts[text] += 1

    def watch(connection: Any, *_: object) -> None:
        connection.set_trace_callback(note)

    event.listen(database.engine.pool, "checkout", watch)
    written = _write_together(database, *[_write_nothing] * CROWD)
    assert all(one.result() for one in written)
    assert sorted(_entries(database)) == sorted(f"of {n}" for n in range(CROWD))
    # One is the turn that they waited for. Who comes a moment too late begins another.
    assert counts["COMMIT"] <= 4


def test_shared_commit_rolls_back_only_the_transactions_that_failed(database: Database):
    works = [_write_nothing] * CROWD
    works[3] = works[7] = _raise_error
    written = _write_together(database, *works)
    faults = [n for n, one in enumerate(written) if one.exception()]
    assert faults == [3, 7]
    kept = {f"of {n}" for n in range(CROWD) if n not in faults}
    assert set(_entries(database)) == kept


def test_shared_commit_keeps_nothing_when_a_savepoint_cannot_be_rolled_back(database: Database):
    def spoil(tx: Transaction) -> None:
        change_log.append_entry(tx, UnknownEvent(kind="half of it"))
        # There is nothing left to go back to.
        tx.sql.exec_driver_sql("RELEASE sa_savepoint_2")
        raise ZeroDivisionError

    written = _write_together(database, _write_nothing, spoil)
    assert isinstance(written[1].exception(), ZeroDivisionError)
    durable = written[0].exception() is None
    assert _entries(database) == (["of 0"] if durable else [])


def test_failed_shared_commit_raises_an_error_in_every_transaction(database: Database):
    def full(_connection: object) -> None:
        raise OperationalError("COMMIT", {}, sqlite3.OperationalError("disk is full"))

    def write(n: int) -> None:
        with database.shared_transaction() as tx:
            change_log.append_entry(tx, UnknownEvent(kind=f"of {n}"))

    def fill(pool: ThreadPoolExecutor) -> None:
        with database.transaction():
            written.extend(pool.submit(write, n) for n in range(CROWD))
            assert _wait_for_commits(database, CROWD)
            event.listen(database.engine, "commit", full)

    written = list[Future[None]]()
    with ThreadPoolExecutor(CROWD) as pool:
        with pytest.raises(StoreUnavailable):
            fill(pool)
        troubles = [one.exception() for one in written]
    assert all(isinstance(trouble, StoreUnavailable) for trouble in troubles)
    event.remove(database.engine, "commit", full)
    assert _entries(database) == []
    assert not _write_together(database, _write_nothing)[0].exception()
    assert _entries(database) == ["of 0"]


def test_database_rollback_of_a_shared_commit_fails_the_lost_transactions(database: Database):
    def given_up(tx: Transaction) -> None:
        # What SQLite does by itself where a disk is full.
        tx.sql.exec_driver_sql("ROLLBACK")
        raise ZeroDivisionError

    written = _write_together(database, *[_write_nothing] * 6, given_up, *[_write_nothing] * 6)
    durable = set(_entries(database))
    assert written[6].exception()
    for n, one in enumerate(written):
        assert (f"of {n}" in durable) == (one.exception() is None)


def test_own_transaction_starts_after_the_shared_commit(database: Database):
    written = _write_together(database, *[_write_nothing] * 3)
    with database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="alone"))
    assert all(one.result() for one in written)
    assert _entries(database)[-1] == "alone"
