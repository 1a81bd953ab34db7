"""Concurrent actions on each database have one effect, and the loser gets an error."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
from sqlalchemy import Table, text

from bot.audit import change_log
from bot.audit.event_type import UnknownEvent
from bot.db import locks, runs
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.model.errors import TooLate
from bot.model.run import RefusedBy, RequestTerms, Run, State
from bot.workflow.finish import end_run
from connectors.errors import CommandError
from tests.bot.databases import on_postgresql
from tests.bot.harness import WEB, Harness
from tests.toy import SetSwitch


def _run_together(*actions: Callable[[], object]) -> list[BaseException | None]:
    """Run all at the same moment and return what each raised."""
    barrier = threading.Barrier(len(actions))
    raised: list[BaseException | None] = [None] * len(actions)

    def go(n: int, action: Callable[[], object]) -> None:
        barrier.wait()
        try:
            action()
        except (TooLate, runs.ConcurrentUpdateError) as late:
            raised[n] = late

    threads = [threading.Thread(target=go, args=pair) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.parametrize("attempt", range(5))
def test_two_approvers_at_once_start_one_run(db_harness: Harness, attempt: int):
    harness = db_harness
    run = harness.request(SetSwitch(host="lb1", name="lamp", value=f"v{attempt}"))

    def by(person: str) -> Callable[[], object]:
        return lambda: harness.service.approve_run(run.id, person=person, digest=run.digest)

    raised = _run_together(by("olga"), by("adam"), by("olga"))
    assert sum(late is None for late in raised) == 1
    harness.run_queued_work()
    assert harness.fleet.sent == [("lb1", f"set lamp v{attempt}")]


@pytest.mark.parametrize("attempt", range(5))
def test_approval_and_denial_at_the_same_time_end_as_a_denial(db_harness: Harness, attempt: int):
    harness = db_harness
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    _run_together(
        lambda: harness.service.approve_run(run.id, person="olga", digest=run.digest),
        lambda: harness.service.deny_run(run.id, person="adam", reason="not today"),
    )
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.DENIED
    assert harness.fleet.sent == []


def test_run_advanced_by_several_threads_is_sent_once(db_harness: Harness):
    harness = db_harness
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    harness.dispatcher.enqueued.clear()
    _run_together(*[lambda: harness.service.advancer.advance_run(run.id)] * 4)
    assert harness.fleet.sent == [("lb1", "set lamp on")]
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_changes_to_one_host_take_turns(db_harness: Harness):
    harness = db_harness
    first = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    second = harness.request(SetSwitch(host="lb1", name="fan", value="on"))
    inside = threading.Semaphore(1)

    def alone(_host: str, _words: str) -> None:
        assert inside.acquire(blocking=False), "two changes on one host at once"
        inside.release()

    harness.fleet.before_send = alone
    for run in (first, second):
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
    waiting, harness.dispatcher.enqueued = harness.dispatcher.enqueued, []
    _run_together(*[lambda n=n: harness.service.advancer.advance_run(n) for n in waiting])
    harness.run_queued_work()
    assert {harness.get_run(run.id).state for run in (first, second)} == {State.SUCCEEDED}


def _is_waiting_for_lock(database: Database) -> bool:
    with database.reading() as tx:
        query = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return bool(tx.sql.execute(query).scalar_one())


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@contextmanager
def _hold_child_run(
    harness: Harness, act: Callable[[int], object]
) -> Generator[tuple[int, Transaction, Run]]:
    """Yield a run over two hosts and one part of it, held, for which *act* on the run waits."""
    requests = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    whole = harness.service.request_on_hosts(
        requests, RequestTerms("dora", WEB), host_pattern="lb*"
    )
    acting = threading.Thread(target=act, args=(whole.id,))
    with harness.database.transaction() as tx:
        held = runs.lock_run(tx, harness.dispatcher.enqueued[0])
        acting.start()
        _wait_until(lambda: _is_waiting_for_lock(harness.database))
        yield whole.id, tx, held
    acting.join()


# SQLite has one writer: there is no such race.
@on_postgresql
def test_child_run_that_ends_while_its_parent_is_withdrawn_does_not_deadlock(db_harness: Harness):
    harness = db_harness

    def withdraw(whole: int) -> None:
        harness.service.withdraw_run(whole, person="dora")

    with _hold_child_run(harness, withdraw) as (whole, tx, part):
        end_run(
            harness.context,
            tx,
            part,
            State.REFUSED,
            "it is not for that host",
            refused_by=RefusedBy.RUNBOOK,
        )
    assert harness.get_run(whole).state is State.WITHDRAWN
    assert harness.get_run(part.id).state is State.REFUSED


@on_postgresql
def test_child_run_that_continues_while_its_parent_is_stopped_does_not_deadlock(
    db_harness: Harness,
):
    harness = db_harness

    def stop(whole: int) -> None:
        harness.service.stop_run(whole, person="dora")

    with _hold_child_run(harness, stop) as (whole, tx, part):
        change_log.append_entry(
            tx, UnknownEvent(kind="step succeeded"), run=part.id, host=part.host
        )
    assert harness.get_run(whole).state is State.STOPPED
    assert "step succeeded" in harness.list_entry_kinds(part)


@on_postgresql
def test_host_lock_released_while_another_run_asks_for_it_is_taken(db_harness: Harness):
    harness = db_harness
    first, second = (harness.request(SetSwitch(host="lb1", name="lamp", value=v)) for v in "ab")
    with harness.database.transaction() as tx:
        assert locks.take_lock(tx, "lb1", first.id) is None
    with harness.database.transaction() as tx:
        ask = tx.insert_once

        def and_lose_it(table: Table, **values: object) -> bool:
            tx.insert_once = ask
            taken = ask(table, **values)
            with harness.database.transaction() as other:
                locks.release_locks(other, first.id)
            return taken

        tx.insert_once = and_lose_it
        assert locks.take_lock(tx, "lb1", second.id) is None
    with harness.database.reading() as tx:
        lock = locks.get_lock(tx, "lb1")
    assert lock
    assert lock.run == second.id


def test_approval_ends_with_an_error_when_its_row_stays_locked(db_harness: Harness):
    harness = db_harness
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    refused: list[StoreUnavailable] = []

    def approve() -> None:
        try:
            harness.service.approve_run(run.id, person="olga", digest=run.digest)
        except StoreUnavailable as trouble:
            refused.append(trouble)

    with harness.database.transaction() as tx:
        runs.lock_run(tx, run.id)
        thread = threading.Thread(target=approve, daemon=True)
        thread.start()
        thread.join(15)
        assert not thread.is_alive()
    assert refused
    assert harness.get_run(run.id).state is State.PENDING


def test_a_run_ends_normally_when_a_host_prints_nul(db_harness: Harness):
    harness = db_harness

    def refuse(_host: str, _words: str) -> None:
        raise CommandError("output: gl\0ed")

    harness.fleet.before_send = refuse
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    thread = threading.Thread(target=harness.run_queued_work, daemon=True)
    thread.start()
    thread.join(10)
    stuck = thread.is_alive()
    harness.service.close()
    thread.join()
    assert not stuck
    ended = harness.get_run(run.id)
    assert ended.state is State.FAILED
    assert "gl\\x00ed" in ended.summary
