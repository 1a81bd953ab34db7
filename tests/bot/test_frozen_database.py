"""A frozen database keeps its connections open and never answers."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError

from bot.db import migrations
from bot.db import statement_timeout as watching
from bot.db.database import Database, StoreUnavailable
from bot.model.run import State
from bot.model.signing import SigningKey
from tests.bot.harness import Harness, open_harness
from tests.playground.postgres import Postgres
from tests.toy import SetSwitch

pytestmark = pytest.mark.real

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
# Far more than a frozen database may cost anybody, and far less than for good.
PATIENCE = 30
A_BUSY_MACHINE = 1.5


@pytest.fixture(scope="module")
def own_postgres() -> Generator[Postgres]:
    """A cluster of our own: nobody else's tests are to freeze with it."""
    with Postgres() as server:
        yield server


@pytest.fixture
def frozen_harness(own_postgres: Postgres, tmp_path: Path) -> Generator[Harness]:
    store = Database(own_postgres.new_database(), SigningKey.create())
    migrations.upgrade_schema(store)
    with open_harness(tmp_path, database=store) as harness:
        yield harness


@contextmanager
def _freeze_server(harness: Harness) -> Generator[None]:
    """Stop the server and all that it has begun, as a disk that hangs or a paused machine does."""
    with harness.database.engine.connect() as connection:
        place = connection.exec_driver_sql("SHOW data_directory").scalar_one()
    postmaster = int((Path(place) / "postmaster.pid").read_text().split("\n", 1)[0])
    os.kill(postmaster, signal.SIGSTOP)
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    everybody = [*map(int, children), postmaster]
    try:
        for process in everybody:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in everybody:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def _run_with_timeout(act: Callable[[], object], seconds: float = PATIENCE) -> threading.Thread:
    """Do something in a thread and wait for its end, or for so long."""

    def attempt() -> None:
        with suppress(StoreUnavailable):
            act()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    return thread


def _keep_connection_open(_driver: object) -> None:
    """Do not hang up."""


def _wait_until_database_works(harness: Harness) -> None:
    """Wait until the database has its wits about it again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with harness.database.transaction():
                return
        except StoreUnavailable:
            assert time.monotonic() < deadline


@contextmanager
def _exhaust_file_descriptors() -> Generator[None]:
    """Let this process open nothing more."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    # What is opened gets the lowest number that is free.
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


def test_frozen_database_connection_is_closed_without_free_file_descriptors(
    frozen_harness: Harness,
):
    asked = threading.Event()

    def wait_for_good() -> None:
        with frozen_harness.database.transaction() as tx:
            asked.set()
            tx.sql.exec_driver_sql("SELECT pg_sleep(60)")

    thread = _run_with_timeout(wait_for_good, seconds=0)
    assert asked.wait(PATIENCE)
    with _exhaust_file_descriptors():
        thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_frozen_database_refuses_the_run_before_any_packet(frozen_harness: Harness):
    harness = frozen_harness
    other = harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
    run = harness.request(LAMP_ON)
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    asked = harness.fleet.asked
    with _freeze_server(harness):
        assert not _run_with_timeout(harness.run_queued_work).is_alive()
        assert not _run_with_timeout(lambda: harness.request(LAMP_ON)).is_alive()

        def approve() -> None:
            harness.service.approve_run(other.id, person="olga", digest=other.digest)

        assert not _run_with_timeout(approve).is_alive()
        assert (harness.fleet.asked, harness.fleet.sent) == (asked, [])
        assert harness.database.error
    _wait_until_database_works(harness)
    assert harness.get_run(other.id).state is State.PENDING
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_no_caller_waits_longer_than_two_seconds_for_a_frozen_database(frozen_harness: Harness):
    """Neither over a connection that is there, nor over one that is made for it."""
    harness = frozen_harness
    run = harness.request(LAMP_ON)
    with _freeze_server(harness):
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                harness.service.approve_run(run.id, person="olga", digest=run.digest)
            assert time.monotonic() - began < 2 + A_BUSY_MACHINE
            harness.database.engine.pool.dispose()
    _wait_until_database_works(harness)


def test_without_the_statement_timeout_callers_wait_for_a_frozen_database(
    frozen_harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin: nothing but the watch hangs up."""
    harness = frozen_harness
    run = harness.request(LAMP_ON)
    monkeypatch.setattr(watching, "_shut_down_socket", _keep_connection_open)
    with _freeze_server(harness):
        stuck = _run_with_timeout(
            lambda: harness.service.approve_run(run.id, person="olga", digest=run.digest), 6
        )
        assert stuck.is_alive()
    stuck.join(PATIENCE)
    assert not stuck.is_alive()


def test_statement_timeout_still_watches_other_connections_when_one_is_lost(
    own_postgres: Postgres, monkeypatch: pytest.MonkeyPatch
):
    """Of such a one there is no socket left to end."""
    closed = psycopg.connect(own_postgres.new_database().replace("+psycopg", ""))
    closed.close()
    real, given_up = watching._shut_down_socket, list[object]()  # pyright: ignore[reportPrivateUsage] - what is watched here

    def first_is_lost(driver: object) -> None:
        given_up.append(driver)
        real(closed if len(given_up) == 1 else driver)

    monkeypatch.setattr(watching, "_shut_down_socket", first_is_lost)
    engine = create_engine(own_postgres.new_database())
    watch = watching.StatementTimeout(engine, 0.2, needed=True)
    with engine.connect() as connection, watch.limit(connection):
        connection.exec_driver_sql("SELECT pg_sleep(0.5)")
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql("SELECT pg_sleep(5)")
    assert len(given_up) == 2
    watch.close()
    engine.dispose()


def test_new_connections_are_opened_after_the_database_server_restarted(frozen_harness: Harness):
    """The pool's old connections are gone; nobody hears of it."""
    harness = frozen_harness
    with harness.database.engine.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        connection.exec_driver_sql("SELECT 1")
    with harness.database.engine.connect() as connection:
        own = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    os.kill(own, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{own}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert harness.request(LAMP_ON).state is State.PENDING
