"""What a workflow may rely on, with each of the dispatchers."""

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import pytest
from procrastinate.exceptions import ConnectorException
from procrastinate.manager import JobManager
from sqlalchemy import insert, text

from bot.db import break_glass, procrastinate_queue, roles, runs, tables
from bot.db.database import Database, Transaction
from bot.execution import procrastinate_worker as crew_module
from bot.execution.local_dispatch import LocalDispatcher
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher, get_change_queue
from bot.execution.procrastinate_worker import ProcrastinateWorker
from bot.features.schedules import rows as schedules
from bot.model.run import RequestOrigin
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.model.signing import SigningKey
from bot.workflow.context import Dispatcher
from tests.bot.databases import create_postgresql_database, create_sqlite_database


class Hands(Protocol):
    """What works on what a dispatcher was told of."""

    def start(self, advance_run: Callable[[int], None]) -> None: ...

    def stop(self, timeout: float | None = None) -> bool: ...


@dataclass
class Staff:
    """A dispatcher with its hands, on a database."""

    database: Database
    dispatch: Dispatcher
    hands: Hands

    def enqueue(self, *numbers: int, lane: str = "enqueue_run") -> None:
        with self.database.transaction() as tx:
            for number in numbers:
                getattr(self.dispatch, lane)(tx, number, "main")

    def busy(self) -> set[int]:
        with self.database.transaction() as tx:
            return set(self.dispatch.list_dispatched_runs(tx))


Hire = Callable[..., Staff]


@pytest.fixture(params=["in process", pytest.param("procrastinated", marks=pytest.mark.real)])
def hire(
    request: pytest.FixtureRequest, database_of: Callable[[str], Database]
) -> Generator[Hire]:
    hired: list[Staff] = []

    def build(threads: int = 4, looks: int = 2) -> Staff:
        if request.param == "in process":
            dispatch = LocalDispatcher(threads, check_threads=looks)
            staff = Staff(database_of("sqlite"), dispatch, dispatch)
        else:
            database = database_of("postgresql")
            crew = ProcrastinateWorker(
                database.url, sites=["main"], threads=threads, check_threads=looks
            )
            staff = Staff(database, ProcrastinateDispatcher(), crew)
        hired.append(staff)
        return staff

    yield build
    for staff in hired:
        staff.hands.stop(10)


@pytest.fixture
def database_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Callable[[str], Database]]:
    opened: list[Database] = []

    def build(kind: str) -> Database:
        if kind == "sqlite":
            database = create_sqlite_database(tmp_path_factory.mktemp("store") / "keyturn.db")
        else:
            database = create_postgresql_database(request.getfixturevalue("postgres"))
        opened.append(database)
        return database

    yield build
    for database in opened:
        database.close()


@dataclass
class Slow:
    """An advance() that waits for its go on everything but what is *quick*."""

    go: threading.Event
    quick: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.begun, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.advanced: list[int] = []

    def __call__(self, number: int) -> None:
        self.advanced.append(number)
        if number in self.quick:
            self.done.release()
            return
        self.begun.release()
        assert self.go.wait(20)


@contextmanager
def start_slow_work(*quick: int) -> Generator[Slow]:
    work = Slow(threading.Event(), frozenset(quick))
    try:
        yield work
    finally:
        work.go.set()


# --- the contract ---


def test_dispatcher_advances_a_run_after_its_transaction_commits(hire: Hire):
    staff, done = hire(), threading.Event()
    advanced: list[int] = []

    def advance(number: int) -> None:
        advanced.append(number)
        done.set()

    staff.hands.start(advance)
    staff.enqueue(7)
    assert done.wait(10)
    assert advanced == [7]


def test_dispatcher_ignores_a_run_whose_transaction_was_rolled_back(hire: Hire):
    """Its twin is above: only the commit makes the difference."""
    staff = hire()
    with start_slow_work(1, 2) as work:
        staff.hands.start(work)
        with suppress(ZeroDivisionError), staff.database.transaction() as tx:
            staff.dispatch.enqueue_run(tx, 1, "main")
            raise ZeroDivisionError
        staff.enqueue(2)
        assert work.done.acquire(timeout=10)
        assert work.advanced == [2]


def test_dispatcher_queues_a_waiting_run_only_once(hire: Hire):
    staff = hire(threads=1)
    with start_slow_work(2) as work:
        staff.hands.start(work)
        staff.enqueue(1)
        assert work.begun.acquire(timeout=10)
        # The first may have looked before this came: it is taken up once more, and only once.
        for _ in range(3):
            staff.enqueue(1)
        staff.enqueue(2)
        work.go.set()
        assert work.done.acquire(timeout=10)
    assert staff.hands.stop(10)
    assert work.advanced == [1, 1, 2]


@pytest.mark.parametrize("lane", ["enqueue_check", "enqueue_run"])
def test_changes_start_while_hanging_checks_hold_all_check_threads(hire: Hire, lane: str):
    """Its twin beside it: if checks had the same threads, the change would wait for them."""
    staff = hire(threads=2, looks=2)
    with start_slow_work(99) as work:
        staff.hands.start(work)
        staff.enqueue(0, 1, 2, 3, lane=lane)
        assert work.begun.acquire(timeout=10)
        assert work.begun.acquire(timeout=10)
        staff.enqueue(99)
        is_done = work.done.acquire(timeout=10 if lane == "enqueue_check" else 1.5)
    assert is_done is (lane == "enqueue_check")


def test_waiting_run_is_listed_as_dispatched(hire: Hire):
    staff = hire(threads=1)
    with start_slow_work() as work:
        staff.hands.start(work)
        staff.enqueue(1)
        assert work.begun.acquire(timeout=10)
        staff.enqueue(2)
        assert 2 in staff.busy()
        assert 3 not in staff.busy()


def test_worker_stop_returns_at_its_timeout_while_a_run_still_runs(hire: Hire):
    staff = hire()
    with start_slow_work() as work:
        staff.hands.start(work)
        staff.enqueue(1)
        assert work.begun.acquire(timeout=10)
        assert not staff.hands.stop(0.05)
    assert staff.hands.stop(10)


def test_dispatcher_advances_other_runs_when_one_raises_an_error(hire: Hire):
    staff, done = hire(threads=1), threading.Event()

    def advance(number: int) -> None:
        if number == 1:
            raise ValueError("a fault of our own")
        done.set()

    staff.hands.start(advance)
    staff.enqueue(1)
    staff.enqueue(2)
    assert done.wait(10)


def test_dispatcher_takes_single_requests_before_child_runs_and_scheduled_runs(hire: Hire):
    """Asked last, taken first: parts of a wave and fires of a schedule wait."""
    staff = hire(threads=1)
    with staff.database.transaction() as tx:
        whole = _add_run(tx)
        parts = [_add_run(tx, parent=whole) for _ in range(3)]
        fired = _add_run(tx, origin=RequestOrigin("schedule", schedule_id=1))
        _mark_as_scheduled(tx, fired)
        alone = _add_run(tx)
    assert _list_order_taken(staff, [*parts, fired, alone]) == [alone, *parts, fired]


def test_dispatcher_lets_people_take_turns_however_many_runs_each_queued(hire: Hire):
    staff = hire(threads=1)
    with staff.database.transaction() as tx:
        doras = [_add_run(tx) for _ in range(6)]
        olgas = [_add_run(tx, requested_by="olga") for _ in range(2)]
        ninas = [_add_run(tx, requested_by="nina")]
    taken = _list_order_taken(staff, [*doras, *olgas, *ninas])
    assert taken == [doras[0], olgas[0], ninas[0], doras[1], olgas[1], *doras[2:]]


def test_person_who_queues_later_waits_for_one_run_of_each_other_person(hire: Hire):
    """Half of the line was served by then: that is not held against whoever comes."""
    staff = hire(threads=1)
    with staff.database.transaction() as tx:
        doras = [_add_run(tx) for _ in range(8)]
        olgas = _add_run(tx, requested_by="olga")
    with start_slow_work(*doras[:4], *doras[5:], olgas) as work:
        staff.hands.start(work)
        staff.enqueue(*doras)
        assert work.begun.acquire(timeout=10)
        staff.enqueue(olgas)
        work.go.set()
        for _ in range(8):
            assert work.done.acquire(timeout=10)
    assert work.advanced.index(olgas) - work.advanced.index(doras[4]) <= 2


def test_break_glass_run_starts_while_all_worker_threads_are_busy(hire: Hire):
    """Its twin is beside it: what is merely single waits until a thread is free."""
    staff = hire(threads=1)
    with staff.database.transaction() as tx:
        long, alone, broken = (_add_run(tx) for _ in range(3))
        break_glass.request_break_glass(tx, run=broken, person="dora", reason="it burns")
        tx.sql.execute(text("UPDATE break_glass SET activated_at = 1"))
    with start_slow_work(alone, broken) as work:
        staff.hands.start(work)
        staff.enqueue(long)
        assert work.begun.acquire(timeout=10)
        staff.enqueue(alone, broken)
        assert work.done.acquire(timeout=10)
        assert work.advanced == [long, broken]


def _mark_as_scheduled(tx: Transaction, run: int) -> None:
    """Let a run be one that the clock has asked for."""
    hourly = ScheduleTiming("hourly", parse_cron("0 * * * *", "UTC"))
    schedule = schedules.add_schedule(
        tx, run=_add_run(tx), owner="dora", timing=hourly, lapses=tx.now
    )
    known = {"schedule": schedule.id, "due_at": 1, "starts_at": 1, "recorded_at": 1, "run": run}
    tx.sql.execute(insert(tables.fire).values(**known, host="lb1", outcome="fired", reason=""))


def _list_order_taken(staff: Staff, numbers: list[int]) -> list[int]:
    """Return in which order these are taken by one thread that is at something else before."""
    with start_slow_work(*numbers) as work:
        staff.hands.start(work)
        staff.enqueue(0)
        assert work.begun.acquire(timeout=10)
        staff.enqueue(*numbers)
        work.go.set()
        for _ in numbers:
            assert work.done.acquire(timeout=10)
    return work.advanced[1:]


def _add_run(tx: Transaction, **more: object) -> int:
    new = runs.NewRun(
        runbook="toy set",
        kind="change",
        values={},
        host="lb1",
        area="edge",
        **{"origin": RequestOrigin("web"), "requested_by": "dora", **more},  # type: ignore[arg-type]
    )
    return runs.add_run(tx, new).id


# --- what only the distributed one has ---


@pytest.fixture
def apart(database_of: Callable[[str], Database]) -> Database:
    return database_of("postgresql")


@pytest.mark.real
def test_queue_hint_waits_for_a_worker_of_its_site(apart: Database):
    dispatch, advanced, arrived = ProcrastinateDispatcher(), list[int](), threading.Event()

    def advance(number: int) -> None:
        advanced.append(number)
        arrived.set()

    crew = ProcrastinateWorker(apart.url, sites=["ams"], threads=1, check_threads=1)
    crew.start(advance)
    with apart.transaction() as tx:
        dispatch.enqueue_run(tx, 1, "rot")
        dispatch.enqueue_check(tx, 2, "rot")
        dispatch.enqueue_run(tx, 3, "ams")
    assert arrived.wait(10)
    assert crew.stop(10)
    with apart.transaction() as tx:
        assert dispatch.list_dispatched_runs(tx) == {1, 2}
    assert advanced == [3]


@pytest.mark.real
def test_queue_hint_of_an_open_transaction_is_kept_until_it_commits(apart: Database):
    """Whoever takes the hint that waits must see what we write: it is held until we commit."""
    dispatch = ProcrastinateDispatcher()
    with apart.transaction() as tx:
        dispatch.enqueue_run(tx, 1, "main")
    with start_slow_work(1, 2) as work:
        crew = ProcrastinateWorker(apart.url, sites=["main"], threads=1, check_threads=1)
        with apart.transaction() as tx:
            dispatch.enqueue_run(tx, 1, "main")
            crew.start(work)
            with apart.transaction() as other:
                dispatch.enqueue_run(other, 2, "main")
            assert work.done.acquire(timeout=10)
            assert work.advanced == [2]
        assert work.done.acquire(timeout=10)
        assert work.advanced == [2, 1]
        assert crew.stop(10)


@pytest.mark.real
def test_queue_hint_of_a_worker_without_heartbeat_is_deleted(apart: Database):
    dispatch = ProcrastinateDispatcher()
    with apart.transaction() as tx:
        dispatch.enqueue_run(tx, 1, "main")
        tx.sql.execute(text("INSERT INTO procrastinate_workers DEFAULT VALUES"))
        tx.sql.execute(
            text(
                "UPDATE procrastinate_jobs SET status = 'doing', "
                "worker_id = (SELECT max(id) FROM procrastinate_workers)"
            )
        )
    with apart.transaction() as tx:
        assert dispatch.list_dispatched_runs(tx) == {1}
        tx.sql.execute(
            text("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'")
        )
        assert dispatch.list_dispatched_runs(tx) == frozenset()
        # A worker that begins takes those away that have not been heard of.
        tx.sql.execute(text("DELETE FROM procrastinate_workers"))
        procrastinate_queue.delete_dead_hints(tx)
        jobs = tx.sql.execute(text("SELECT count(*) FROM procrastinate_jobs")).scalar_one()
        assert jobs == 0


@pytest.mark.real
def test_worker_reconnects_after_the_database_ended_its_connections(apart: Database):
    dispatch = ProcrastinateDispatcher()
    with start_slow_work(1, 2) as work:
        crew = ProcrastinateWorker(apart.url, sites=["main"], threads=1, check_threads=1)
        crew.start(work)
        with apart.transaction() as tx:
            dispatch.enqueue_run(tx, 1, "main")
        assert work.done.acquire(timeout=10)
        with apart.transaction() as tx:
            tx.sql.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        deadline = time.monotonic() + 10
        while True:
            try:
                with apart.transaction() as tx:
                    dispatch.enqueue_run(tx, 2, "main")
                break
            except Exception:  # noqa: BLE001 - our own connections were thrown out too
                assert time.monotonic() < deadline
        assert work.done.acquire(timeout=20)
        assert crew.stop(10)


@pytest.mark.real
def test_worker_starts_again_when_its_database_connections_fail_to_open(
    apart: Database, monkeypatch: pytest.MonkeyPatch
):
    works, troubles = ProcrastinateWorker._run_workers, [OSError("no route to host")]  # pyright: ignore[reportPrivateUsage]

    async def once_in_trouble(crew: ProcrastinateWorker) -> None:
        if troubles:
            raise troubles.pop()
        await works(crew)

    monkeypatch.setattr(ProcrastinateWorker, "_run_workers", once_in_trouble)
    dispatch, arrived = ProcrastinateDispatcher(), threading.Event()
    crew = ProcrastinateWorker(apart.url, sites=["main"], threads=1, check_threads=1)
    crew.start(lambda _number: arrived.set())
    with apart.transaction() as tx:
        dispatch.enqueue_run(tx, 1, "main")
    assert arrived.wait(20)
    assert crew.stop(10)


@pytest.mark.real
@pytest.mark.parametrize("looks_after", [True, False])
def test_queue_hint_that_could_not_be_finished_is_deleted_by_the_cleanup(
    apart: Database, monkeypatch: pytest.MonkeyPatch, looks_after: bool
):
    """Its twin beside it: else its run would count as taken care of for as long as we live."""
    away = threading.Event()

    async def finish_job(*_: object, **__: object) -> None:
        away.set()
        raise ConnectorException

    monkeypatch.setattr(JobManager, "finish_job", finish_job)
    monkeypatch.setattr(crew_module, "_CLEANUP_SECONDS", 0.2 if looks_after else 600)
    dispatch = ProcrastinateDispatcher()
    crew = ProcrastinateWorker(apart.url, sites=["main"], threads=1, check_threads=1)
    crew.start(lambda _: None)
    with apart.transaction() as tx:
        dispatch.enqueue_run(tx, 1, "main")
    assert away.wait(20)
    deadline = time.monotonic() + (20 if looks_after else 2)
    busy = {1}
    while busy and time.monotonic() < deadline:
        time.sleep(0.05)
        with apart.transaction() as tx:
            busy = set(dispatch.list_dispatched_runs(tx))
    assert busy == (set() if looks_after else {1})
    assert crew.stop(10)


@pytest.mark.real
def test_worker_runs_with_the_database_role_of_the_service(apart: Database):
    role = f"hand_{os.getpid()}"
    with apart.transaction() as tx:
        tx.sql.execute(text(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'"))
    roles.grant_roles(apart, role)
    scheme, _, rest = apart.url.partition("://")
    database = Database(f"{scheme}://{role}:{role}@{rest.partition('@')[2]}", SigningKey.create())
    dispatch = ProcrastinateDispatcher()
    with start_slow_work(1) as work:
        crew = ProcrastinateWorker(database.url, sites=["main"], threads=1, check_threads=1)
        crew.start(work)
        with database.transaction() as tx:
            dispatch.enqueue_run(tx, 1, "main")
        assert work.done.acquire(timeout=20)
        with database.transaction() as tx:
            dispatch.list_dispatched_runs(tx)
        assert crew.stop(10)
    database.close()


def test_change_queue_is_named_after_its_site():
    assert get_change_queue("ams") == "site-ams"
