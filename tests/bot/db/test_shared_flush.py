"""Appends on PostgreSQL: the log is free while their transactions wait for the disk, and what was
acknowledged is there after a crash."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from bot.audit import change_log, verification
from bot.audit.event_type import UnknownEvent
from bot.db import migrations
from bot.db.database import Database, StoreUnavailable
from bot.db.shared_flush import SharedFlush
from bot.model.signing import SigningKey
from tests.bot.databases import on_postgresql
from tests.playground.cluster import IMMEDIATE, Cluster

CROWD = 6


@dataclass
class _Disk:
    """A connection whose commit waits until the test lets it go on."""

    is_lost: bool = False
    begun: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)
    flushes: int = 0

    def execution_options(self, **_: object) -> None:
        pass

    def exec_driver_sql(self, _statement: str) -> None:
        self.flushes += 1
        self.begun.set()
        assert self.may_end.wait(20)
        if self.is_lost:
            raise OperationalError("", {}, ConnectionError("lost"))


class _Watched(SharedFlush):
    """Counts who waits, so that a test can let the disk go on when all of them do."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)

    def _take_number(self) -> int:
        number = super()._take_number()
        self.arrived.release()
        return number


def _flush_together(first: _Disk) -> tuple[list[Future[None]], _Disk]:
    """Have one thread wait for its disk and more come meanwhile, who have another connection."""
    flush, others = _Watched(), _Disk()
    others.may_end.set()
    with ThreadPoolExecutor(CROWD + 1) as pool:
        waits = [pool.submit(flush.wait_until_durable, cast("Connection", first))]
        assert first.begun.wait(20)
        waits += [
            pool.submit(flush.wait_until_durable, cast("Connection", others)) for _ in range(CROWD)
        ]
        assert all(flush.arrived.acquire(timeout=20) for _ in waits)
        first.may_end.set()
    return waits, others


def test_those_who_commit_while_the_disk_is_busy_wait_for_it_once_together():
    waits, others = _flush_together(_Disk())
    assert not any(one.exception() for one in waits)
    assert others.flushes == 1


def test_a_lost_connection_fails_only_the_thread_that_has_it():
    waits, others = _flush_together(_Disk(is_lost=True))
    assert [one.exception() is None for one in waits] == [False] + [True] * CROWD
    assert others.flushes == 1


def _open_log(database: Database) -> None:
    with database.transaction() as tx:
        verification.open_log(tx)


def _append(database: Database, kind: str) -> int:
    with database.transaction() as tx:
        return change_log.append_entry(tx, UnknownEvent(kind=kind)).seq


def _list_kinds(database: Database) -> list[str]:
    with database.reading() as tx:
        return [entry.kind for entry in change_log.list_entries_after(tx, 1)]


@contextmanager
def _before_flush(database: Database, act: Callable[[Connection], None]) -> Generator[None]:
    """Do this between the commit and the wait for the disk."""

    def see(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if "pg_logical_emit_message" in statement:
            act(connection)

    event.listen(database.engine, "before_cursor_execute", see)
    yield
    event.remove(database.engine, "before_cursor_execute", see)


@on_postgresql
@pytest.mark.real
def test_log_is_free_for_others_while_a_writer_waits_for_the_disk(database: Database):
    other = Database(database.url, database._signing_key)  # pyright: ignore[reportPrivateUsage] - another process
    _open_log(database)
    seen: list[Any] = []

    def append_meanwhile(_connection: Connection) -> None:
        if not seen:
            seen.append(database.seen_head.tree.size)
            seen.append(_append(other, "another's"))

    with _before_flush(database, append_meanwhile):
        assert _append(database, "ours") == 2
    assert seen == [1, 3]
    assert _list_kinds(database) == ["ours", "another's"]
    assert _append(database, "later") == 4
    other.close()


@on_postgresql
@pytest.mark.real
def test_commit_that_may_not_be_durable_is_an_error_and_the_log_goes_on(database: Database):
    _open_log(database)
    noted = list[str]()

    def hang_up(connection: Connection) -> None:
        pid = cast("Any", connection.connection.driver_connection).info.backend_pid
        with database.engine.connect() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 5000)")

    def append_and_note() -> None:
        with database.transaction() as tx:
            change_log.append_entry(tx, UnknownEvent(kind="ours"))
            tx.after_commit(lambda: noted.append("told"))

    with _before_flush(database, hang_up), pytest.raises(StoreUnavailable):
        append_and_note()
    assert (noted, database.seen_head.tree.size) == ([], 1)
    assert database.error is not None
    # As with an answer to a commit that is lost: it is there.
    assert _append(database, "later") == 3
    assert database.error is None
    with database.reading() as tx:
        assert verification.verify_log(tx).broken is None


@on_postgresql
@pytest.mark.real
def test_writer_that_waits_too_long_for_the_log_appends_nothing(database: Database):
    _open_log(database)
    other = Database(database.url, database._signing_key)  # pyright: ignore[reportPrivateUsage] - another process
    with other.transaction() as tx:
        change_log.lock_log(tx)
        with pytest.raises(StoreUnavailable):
            _append(database, "too late")
    assert _append(database, "later") == 2
    assert _list_kinds(database) == ["later"]
    other.close()


@dataclass
class _Crashing:
    """A server that crashes, with a log that two processes append to."""

    cluster: Cluster
    url: str
    key: SigningKey

    def open_database(self) -> Database:
        return Database(self.url, self.key)

    def crash_after_appends(self, name: str) -> tuple[Database, list[str]]:
        """Return a database that has appended, and the kinds that were acknowledged."""
        databases = [self.open_database(), self.open_database()]
        acknowledged, many = list[str](), threading.Semaphore(0)

        def append_until_refused(writer: int) -> None:
            for n in range(10_000):
                try:
                    _append(databases[writer % 2], kind := f"{name} {writer} {n}")
                except StoreUnavailable:
                    return
                acknowledged.append(kind)
                many.release()

        with ThreadPoolExecutor(CROWD) as pool:
            for writer in range(CROWD):
                pool.submit(append_until_refused, writer)
            assert all(many.acquire(timeout=20) for _ in range(3 * CROWD))
            self.cluster.restart(IMMEDIATE)
        databases[1].close()
        return databases[0], acknowledged


@pytest.fixture(scope="module")
def crashing() -> Generator[_Crashing]:
    with Cluster() as cluster:
        # Only a commit that waits for the disk writes to it.
        cluster.do("ALTER SYSTEM SET wal_writer_delay = '10s'")
        cluster.do("SELECT pg_reload_conf()")
        crashing = _Crashing(cluster, cluster.new_database(), SigningKey.create())
        database = crashing.open_database()
        migrations.upgrade_schema(database)
        _open_log(database)
        database.close()
        yield crashing


@pytest.mark.real
def test_acknowledged_entries_are_there_after_the_server_crashed(crashing: _Crashing):
    database, acknowledged = crashing.crash_after_appends("a")
    kinds = _list_kinds(database)
    assert set(acknowledged) <= set(kinds)
    # What this process remembers is in the log, so it goes on.
    assert _append(database, "later") == len(kinds) + 2
    with database.reading() as tx:
        assert verification.verify_log(tx).broken is None
    database.close()


@pytest.mark.real
def test_without_the_wait_acknowledged_entries_are_lost_in_a_crash(
    crashing: _Crashing, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(SharedFlush, "wait_until_durable", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    database, acknowledged = crashing.crash_after_appends("b")
    assert set(acknowledged) - set(_list_kinds(database))
    database.close()
