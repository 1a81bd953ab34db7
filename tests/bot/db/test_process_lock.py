"""The process lock on PostgreSQL, also after the database was away."""

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import psycopg
import pytest

from bot.app import lock_database
from bot.audit import change_log
from bot.audit.event_type import UnknownEvent
from bot.db.database import AlreadyRunning, Database, StoreUnavailable
from bot.db.process_lock import ProcessLock, lock_exclusive, lock_shared
from bot.model.keyfile import KeyFileError
from bot.model.signing import SigningKey
from bot.settings import Settings
from tests.bot.databases import create_postgresql_database
from tests.playground.postgres import Postgres
from tests.playground.silencing_proxy import SilencingProxy

pytestmark = pytest.mark.real

Open = Callable[[], Database]


@pytest.fixture
def opened(postgres: Postgres) -> Generator[Open]:
    """Opens databases at one address, with their schema."""
    databases = [create_postgresql_database(postgres)]

    def open_one() -> Database:
        databases.append(Database(databases[0].url, SigningKey.create()))
        return databases[-1]

    yield open_one
    for database in databases:
        database.close()


def _end_database_sessions(database: Database, *, only_the_lock: bool = False) -> None:
    """End sessions of a database, as a restart ends them all."""
    address = database.url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND (NOT %s OR pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory'))",
            (only_the_lock,),
        )


@dataclass
class Process:
    """A process at work: what it writes with, and whether it was told to end."""

    database: Database
    tenure: ProcessLock
    ended: list[None] = field(default_factory=list[None])

    def write(self) -> None:
        with self.database.transaction() as tx:
            change_log.append_entry(tx, UnknownEvent(kind="written"))


def _start_process(
    stack: ExitStack, opened: Open, *, alone: bool = True, heeds: bool = True
) -> Process:
    hold = lock_exclusive if alone else lock_shared
    tenure = stack.enter_context(hold(opened()))
    assert tenure is not None
    process = Process(opened(), tenure)
    if heeds:
        process.database.may_write = tenure.check
    tenure.on_end = lambda: process.ended.append(None)
    return process


@pytest.mark.parametrize("alone", [True, False])
def test_process_lock_is_taken_again_before_the_next_write(opened: Open, alone: bool):
    with ExitStack() as stack:
        process = _start_process(stack, opened, alone=alone)
        _end_database_sessions(process.database)
        process.write()
        other = lock_shared(opened()) if alone else lock_exclusive(opened())
        with pytest.raises(AlreadyRunning), other:
            pass
        assert not process.ended


def test_without_the_lock_check_another_process_gets_the_process_lock(opened: Open):
    """The twin."""
    with ExitStack() as stack:
        process = _start_process(stack, opened, heeds=False)
        _end_database_sessions(process.database)
        process.write()
        with lock_exclusive(opened()):
            process.write()


def test_process_lock_is_taken_again_when_only_its_session_ended(opened: Open):
    with ExitStack() as stack:
        process = _start_process(stack, opened)
        process.write()
        _end_database_sessions(process.database, only_the_lock=True)
        process.write()
        with pytest.raises(AlreadyRunning), lock_exclusive(opened()):
            pass


@pytest.mark.parametrize("alone", [True, False])
def test_process_that_lost_the_process_lock_writes_nothing_and_ends(opened: Open, alone: bool):
    with ExitStack() as stack:
        process = _start_process(stack, opened, alone=alone)
        _end_database_sessions(process.database)
        with lock_exclusive(opened()) as other:
            assert other is not None
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match=r"another|embedded"):
                    process.write()
            other.check()
        # The other may have changed what we know by heart: it is too late.
        with pytest.raises(StoreUnavailable):
            process.write()
        assert process.ended == [None]


def test_process_that_lost_the_process_lock_ends_with_an_error(opened: Open):
    here = opened()
    settings = Settings(database=here.url)
    with pytest.raises(StoreUnavailable, match="must not write any more"):
        _lock_twice(settings, here, put_out=True)
    _lock_twice(settings, here, put_out=False)


def _lock_twice(settings: Settings, here: Database, *, put_out: bool) -> None:
    with lock_database(settings) as tenure:
        assert tenure is not None
        # It would end this process.
        tenure.on_end = lambda: None
        if put_out:
            _end_database_sessions(here, only_the_lock=True)
            with lock_exclusive(here), suppress(StoreUnavailable):
                tenure.check()


def test_process_ends_when_the_log_has_another_signing_key_after_reconnect(opened: Open):
    with ExitStack() as stack:
        process = _start_process(stack, opened)

        def changed() -> None:
            raise KeyFileError("another key seals the log")

        process.tenure.on_return = changed
        _end_database_sessions(process.database)
        with pytest.raises(StoreUnavailable, match="another key"):
            process.write()
        assert process.ended == [None]


def test_stale_own_session_on_the_server_does_not_block_the_process_lock(
    postgres: Postgres, opened: Open
):
    """A network that breaks tells only one side."""
    direct = opened()
    port = direct.engine.url.port
    assert port
    with SilencingProxy("127.0.0.1", port) as proxy, ExitStack() as stack:
        through = direct.engine.url.set(host="127.0.0.1", port=proxy.port)
        behind = Database(through.render_as_string(hide_password=False))
        tenure = stack.enter_context(lock_exclusive(behind))
        assert tenure is not None
        proxy.fall_silent()
        proxy.resume()
        # Looked at after a while, since nothing is heard of the break.
        tenure._checked_at -= 60  # pyright: ignore[reportPrivateUsage] - time goes by
        with pytest.raises(AlreadyRunning), lock_exclusive(direct):
            pass
        tenure.check()
        with pytest.raises(AlreadyRunning), lock_exclusive(direct):
            pass
        behind.close()


def test_concurrent_writers_take_the_process_lock_again_once(opened: Open):
    with ExitStack() as stack:
        process = _start_process(stack, opened)
        returned: list[None] = []
        process.tenure.on_return = lambda: returned.append(None)
        _end_database_sessions(process.database)
        barrier, wrong = threading.Barrier(8), list[Exception]()

        def write() -> None:
            barrier.wait()
            try:
                process.write()
            except StoreUnavailable as trouble:
                wrong.append(trouble)

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (wrong, returned) == ([], [None])
