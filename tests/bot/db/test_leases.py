"""Leases and fencing tokens: one worker has a run; a worker away too long sends nothing."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Queue

import pytest
from sqlalchemy import text

from bot.audit import change_log, events
from bot.db import lease_keeper, leases, locks, migrations, runs
from bot.db.database import Database, boot_time
from bot.db.lease_keeper import HeldLease, LeaseExpiredError, LeaseKeeper
from bot.model import signing
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.policy import PolicyDirectory
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.command import NO_HOOKS, Answer, Command, RunHooks
from connectors.errors import UnreachableError
from tests.bot.clock import MINUTE, Clock
from tests.bot.harness import WEB, Harness, ManualDispatcher, open_harness
from tests.playground.postgres import Postgres
from tests.policies import write_policy
from tests.processes import get_fork_context
from tests.toy import RUNBOOKS, SetAll, SetSwitch, ToyFleet

# Of a worker in a process of its own, which sends a heartbeat each half second.
_LEASE_SECONDS = 6.0


def _expire_lease(database: Database) -> None:
    with database.transaction() as tx:
        tx.sql.execute(text("UPDATE lease SET expires_at = 0"))


def _start_another_process(harness: Harness) -> KeyturnService:
    """Return another process on the same database, as far as that can tell."""
    return KeyturnService(replace(harness.context, lease_keeper=LeaseKeeper()))


def _take_over_expired_leases(other: KeyturnService) -> None:
    # What is found once may live and say so a moment later.
    other.advancer.recover_expired_leases()
    other.advancer.recover_expired_leases()


def _list_claims(harness: Harness, run: Run) -> list[tuple[str, int]]:
    """Return the worker and fencing token of each claim of a run."""
    with harness.database.reading() as tx:
        entries = change_log.list_entries_of_run(tx, run.id)
    found = [entry.event for entry in entries if entry.kind == events.Claimed.kind]
    return [(one.worker, one.fence) for one in found if isinstance(one, events.Claimed)]


def _approve_request(harness: Harness, runbook: SetSwitch | SetAll | None = None) -> Run:
    run = harness.request(runbook or SetSwitch(host="lb1", name="lamp", value="on"))
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    return run


def test_claimed_entry_in_the_log_names_worker_and_fencing_token(db_harness: Harness):
    harness = db_harness
    run = _approve_request(harness)
    harness.run_queued_work()
    assert _list_claims(harness, run) == [(harness.context.lease_keeper.name, 1)]
    assert harness.context.lease_keeper.leased_runs == frozenset()


def test_claimed_run_is_taken_over_with_a_higher_fencing_token(
    db_harness: Harness,
):
    harness = db_harness
    run, other = _approve_request(harness), _start_another_process(harness)
    once = iter([True])

    def vanish(_host: str) -> None:
        if next(once, False):
            _expire_lease(harness.database)
            _take_over_expired_leases(other)

    harness.fleet.before_query = vanish
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.QUEUED
    assert harness.fleet.sent == []
    other.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert harness.fleet.sent == [("lb1", "set lamp on")]
    # Once by each who claimed it, and once by who took it away in between.
    assert [fence for _, fence in _list_claims(harness, run)] == [1, 3]
    assert "lease taken over" in harness.list_entry_kinds(run)


def test_outdated_fencing_token_sends_nothing_although_the_host_is_locked(
    db_harness: Harness,
):
    """Its twin: with the fence as it was, the very same run goes through."""
    harness = db_harness
    run = _approve_request(harness)

    def overtake(_host: str) -> None:
        with harness.database.transaction() as tx:
            tx.sql.execute(text("UPDATE lease SET fence = fence + 1"))

    harness.fleet.before_query = overtake
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.STARTING
    assert harness.fleet.sent == []


def test_step_is_unknown_outcome_and_keeps_its_host_lock_when_the_lease_expires(
    db_harness: Harness,
):
    harness = db_harness
    run, other = _approve_request(harness), _start_another_process(harness)

    def vanish(_host: str, _words: str) -> None:
        _expire_lease(harness.database)
        _take_over_expired_leases(other)

    harness.fleet.before_send = vanish
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.UNKNOWN
    with harness.database.reading() as tx:
        lock = locks.get_lock(tx, "lb1")
        late = [
            each.facts
            for each in change_log.list_entries_of_run(tx, run.id)
            if each.kind == events.LoggingFailed.kind
        ]
    assert lock
    assert lock.run == run.id
    # What the first one saw is not lost: whoever looks into it finds it.
    assert [(each["step"], each["outcome"]) for each in late] == [(1, "succeeded")]


def test_lease_is_deleted_when_its_run_ends_with_a_known_outcome(db_harness: Harness):
    """Until then, it says which worker the host has to refuse."""
    harness = db_harness
    run = _approve_request(harness)

    def vanish(_host: str, _words: str) -> None:
        _expire_lease(harness.database)
        _take_over_expired_leases(_start_another_process(harness))

    harness.fleet.before_send = vanish
    harness.service.advancer.advance_run(run.id)
    with harness.database.reading() as tx:
        assert leases.get_lease(tx, run.id) is not None
    harness.service.resolve_run(run.id, person="olga", succeeded=True, reason="looked at it")
    assert harness.get_run(run.id).state is State.SUCCEEDED
    with harness.database.reading() as tx:
        assert leases.get_lease(tx, run.id) is None


def test_run_taken_over_between_two_steps_is_continued_by_the_new_worker_only(db_harness: Harness):
    harness = db_harness
    run, other = (
        _approve_request(harness, SetAll(host="lb1", value="on")),
        _start_another_process(harness),
    )

    def vanish() -> None:
        harness.database.on_outbox_change = lambda: None
        _expire_lease(harness.database)
        _take_over_expired_leases(other)

    def after_that(_host: str, _words: str) -> None:
        # The outcome of the first step is written, and only then is its worker lost.
        harness.database.on_outbox_change = vanish

    harness.fleet.after_send = after_that
    harness.service.advancer.advance_run(run.id)
    assert len(harness.fleet.sent) == 1
    assert harness.get_run(run.id).state is State.RUNNING
    # Nor does a hint that comes twice do a step twice.
    for _ in range(2):
        other.advancer.advance_run(run.id)
    assert [words for _, words in harness.fleet.sent] == ["set fan on", "set lamp on"]
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert "resumed" in harness.list_entry_kinds(run)


def test_run_left_too_long_between_two_steps_is_stopped(db_harness: Harness):
    harness = db_harness
    run, other = (
        _approve_request(harness, SetAll(host="lb1", value="on")),
        _start_another_process(harness),
    )

    def vanish() -> None:
        harness.database.on_outbox_change = lambda: None
        with harness.database.transaction() as tx:
            tx.sql.execute(text("UPDATE step SET ended_at = ended_at - 700000000"))
        _expire_lease(harness.database)
        _take_over_expired_leases(other)

    def after_that(_host: str, _words: str) -> None:
        harness.database.on_outbox_change = vanish

    harness.fleet.after_send = after_that
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.STOPPED
    assert len(harness.fleet.sent) == 1


def test_error_of_a_worker_without_the_lease_does_not_end_the_run(db_harness: Harness):
    harness = db_harness
    run, other = _approve_request(harness), _start_another_process(harness)
    once, seen = iter([True]), list[State]()

    def overtake(_host: str) -> None:
        if not next(once, False):
            return
        _expire_lease(harness.database)
        _take_over_expired_leases(other)
        harness.fleet.before_send = lambda _host, _words: fail()
        other.advancer.advance_run(run.id)

    def fail() -> None:
        # The other one is at its step; the first comes to grief at this very moment.
        harness.service.advancer._end_after_internal_error(run.id)  # pyright: ignore[reportPrivateUsage] - as advance_run() does
        seen.append(harness.get_run(run.id).state)

    harness.fleet.before_query = overtake
    harness.service.advancer.advance_run(run.id)
    assert seen == [State.RUNNING]
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_run_of_a_worker_with_a_valid_lease_is_not_taken_over(db_harness: Harness):
    harness = db_harness
    run, other = _approve_request(harness), _start_another_process(harness)
    harness.fleet.before_send = lambda _host, _words: _take_over_expired_leases(other)
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert "lease taken over" not in harness.list_entry_kinds(run)


def test_late_heartbeat_keeps_a_lease_that_nobody_took_over(db_harness: Harness):
    """One look alone takes nothing: when the database comes back, those who live say so."""
    harness = db_harness
    run, other = _approve_request(harness), _start_another_process(harness)

    def pause(_host: str, _words: str) -> None:
        _expire_lease(harness.database)
        other.advancer.recover_expired_leases()
        harness.context.lease_keeper.renew_leases(harness.database)
        other.advancer.recover_expired_leases()

    harness.fleet.before_send = pause
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_worker_that_ends_gives_up_its_leases(db_harness: Harness):
    harness = db_harness
    run, other = _approve_request(harness), _start_another_process(harness)

    def end(_host: str) -> None:
        harness.service.close()
        harness.context.lease_keeper.end_leases(harness.database)
        _take_over_expired_leases(other)

    harness.fleet.before_query = end
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.QUEUED


def test_run_left_between_two_steps_by_an_ending_worker_is_resumed_at_once(db_harness: Harness):
    """Nobody waits until the one that ends has not been heard of for long."""
    harness = db_harness
    run, other = (
        _approve_request(harness, SetAll(host="lb1", value="on")),
        _start_another_process(harness),
    )
    harness.dispatcher.enqueued.clear()
    harness.fleet.after_send = lambda _host, _words: harness.service.close()
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.RUNNING
    # It was woken, and whoever hears of that needs no other look at the clock.
    assert harness.dispatcher.enqueued == [run.id]
    other.advancer.advance_run(run.id)
    assert [words for _, words in harness.fleet.sent] == ["set fan on", "set lamp on"]
    assert harness.get_run(run.id).state is State.SUCCEEDED


@pytest.mark.parametrize(("minutes", "sent"), [(5, 2), (3 * 24 * 60, 1)])
def test_run_left_for_days_between_two_steps_is_not_resumed_by_an_old_hint(
    tmp_path: Path, minutes: int, sent: int
):
    """Nobody was there in between, and whoever comes first hears of it by an old hint."""
    clock = Clock(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())
    with open_harness(tmp_path, database=clock) as harness:
        run, other = (
            _approve_request(harness, SetAll(host="lb1", value="on")),
            _start_another_process(harness),
        )
        harness.fleet.after_send = lambda _host, _words: harness.service.close()
        harness.run_queued_work()
        clock.ahead += minutes * MINUTE
        other.advancer.advance_run(run.id)
        assert len(harness.fleet.sent) == sent
        _take_over_expired_leases(other)
        ended = State.SUCCEEDED if sent == 2 else State.STOPPED
        assert harness.get_run(run.id).state is ended


def test_run_at_the_gate_of_an_ending_worker_is_started_by_another_at_once(db_harness: Harness):
    harness = db_harness
    run, other = _approve_request(harness), _start_another_process(harness)
    harness.dispatcher.enqueued.clear()
    harness.fleet.before_query = lambda _host: harness.service.close()
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.QUEUED
    assert harness.fleet.sent == []
    assert harness.dispatcher.enqueued == [run.id]
    other.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_verification_interrupted_by_shutdown_is_repeated_by_another_worker(db_harness: Harness):
    harness = db_harness
    run, other = _approve_request(harness), _start_another_process(harness)
    harness.dispatcher.enqueued.clear()

    def cut(_host: str) -> None:
        harness.fleet.before_query = lambda _host: None
        raise UnreachableError("Keyturn is shutting down")

    def end(_host: str, _words: str) -> None:
        harness.service.close()
        harness.fleet.before_query = cut

    harness.fleet.after_send = end
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.RUNNING
    other.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert len(harness.fleet.sent) == 1


class Faulty(LeaseKeeper):
    """Its first pulse meets a fault of our own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pulses = Queue[int]()

    def renew_leases(self, database: Database) -> None:
        self.pulses.put(1)
        if self.pulses.qsize() == 1:
            raise RuntimeError("a fault")
        super().renew_leases(database)


def test_error_in_one_heartbeat_does_not_stop_the_next_ones(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("bot.db.lease_keeper._HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr("bot.db.lease_keeper._RETRY_SECONDS", 0.01)
    worker = Faulty()
    worker.start_heartbeat(harness.database)
    deadline = time.monotonic() + 20
    while worker.pulses.qsize() < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    worker.end_leases(harness.database)


def _skip_lease_check(_worker: LeaseKeeper, _hold: HeldLease) -> None:
    """Guard nothing."""


@pytest.mark.parametrize("guarded", [True, False])
def test_a_worker_sends_nothing_when_its_heartbeat_is_late(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, guarded: bool
):
    """Its twin beside it: without the check, the packet goes out."""
    # Late by the worker's own clock from the start; by the database's not within the test.
    monkeypatch.setattr("bot.db.lease_keeper._MARGIN_SECONDS", 600.5)
    harness.service = KeyturnService(
        replace(harness.context, lease_keeper=LeaseKeeper(seconds=600))
    )
    if not guarded:
        monkeypatch.setattr(LeaseKeeper, "check_lease", _skip_lease_check)
    run = _approve_request(harness)
    harness.run_queued_work()
    done = harness.get_run(run.id)
    assert bool(harness.fleet.sent) is not guarded
    if guarded:
        assert done.state is State.FAILED
        assert "Nothing was sent" in done.summary


def test_lease_check_uses_a_clock_that_runs_while_the_process_is_stopped():
    worker = LeaseKeeper()
    with pytest.raises(LeaseExpiredError, match=r"no heartbeat for 1[45] s"):
        worker.check_lease(HeldLease(1, 1, boot_time() - 1))


# --- a real process, stopped by a real signal ---


@dataclass
class AtTheDoor(ToyFleet):
    """Stands where the connection would be: waits between the gate and the packet."""

    directory: Path = Path()

    def run_command(
        self,
        host: str,
        command: Command,
        /,
        *,
        fingerprint: str = "",
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        (self.directory / "at the door").touch()
        _wait_until((self.directory / "go").exists)
        hooks.before_send()
        (self.directory / "sent").touch()
        return super().run_command(host, command, fingerprint=fingerprint, hooks=hooks)


def _wait_until(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _open_service(url: str, directory: Path) -> tuple[KeyturnService, Database, LeaseKeeper]:
    database = Database(url, signing.load_signing_key(directory / "key"))
    worker = LeaseKeeper(seconds=_LEASE_SECONDS)
    parts = WorkflowContext(
        database,
        PolicyDirectory(directory / "policy"),
        AtTheDoor(directory=directory),
        ManualDispatcher(),
        runbooks=RUNBOOKS,
        lease_keeper=worker,
    )
    return KeyturnService(parts), database, worker


def _run_worker(url: str, directory: Path, run: int) -> None:
    service, database, worker = _open_service(url, directory)
    lease_keeper._HEARTBEAT_SECONDS = 0.5  # pyright: ignore[reportPrivateUsage] - in its own process
    worker.start_heartbeat(database)
    service.advancer.advance_run(run)
    (directory / "came back").touch()


@pytest.mark.real
@pytest.mark.parametrize("stopped", [True, False])
def test_worker_stopped_past_its_lease_sends_nothing_after_it_wakes(
    postgres: Postgres, tmp_path: Path, stopped: bool
):
    """Its twin beside it: who is not stopped, however long it waits, is heard of and sends."""
    url = postgres.new_database()
    write_policy(tmp_path / "policy")
    store = Database(url, SigningKey.create())
    migrations.upgrade_schema(store)
    store.close()
    service, database, _ = _open_service(url, tmp_path)
    run = _add_approved_run(service, database)
    process = get_fork_context().Process(target=_run_worker, args=(url, tmp_path, run))
    process.start()
    try:
        _wait_until((tmp_path / "at the door").exists)
        if stopped:
            assert process.pid
            os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()

        def over() -> bool:
            service.advancer.recover_expired_leases()
            time.sleep(0.3)
            taken = _get_state(database, run) is State.UNKNOWN
            return taken or (not stopped and time.monotonic() - began > _LEASE_SECONDS + 1)

        _wait_until(over)
        (tmp_path / "go").touch()
        if stopped:
            assert process.pid
            os.kill(process.pid, signal.SIGCONT)
        _wait_until((tmp_path / "came back").exists)
    finally:
        process.kill()
        process.join()
        database.close()
    assert (tmp_path / "sent").exists() is not stopped


def _add_approved_run(service: KeyturnService, database: Database) -> int:
    asked = service.request_run(
        SetSwitch(host="lb1", name="lamp", value="on"), RequestTerms("dora", WEB)
    )
    service.advancer.advance_run(asked.id)
    with database.reading() as tx:
        run = runs.get_run(tx, asked.id)
    service.approve_run(run.id, person="olga", digest=run.digest)
    return run.id


def _get_state(database: Database, run: int) -> State:
    with database.reading() as tx:
        return runs.get_run(tx, run).state
