"""The change log fails during a run: the run stops, and known outcomes are kept."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from bot.audit import change_log, events, verification
from bot.audit.spool import Spool
from bot.db import locks, runs
from bot.maintenance.housekeeping import Housekeeping
from bot.model.run import Run, State, StepState
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from tests.bot.harness import Harness
from tests.toy import SetAll

PATIENCE = 20


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "changelog.spool")


def _break_log(harness: Harness) -> None:
    with harness.database.engine.connect() as connection:
        connection.execute(text("ALTER TABLE entry RENAME TO entry_gone"))


def _repair_log(harness: Harness) -> None:
    with harness.database.engine.connect() as connection:
        connection.execute(text("ALTER TABLE entry_gone RENAME TO entry"))


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _crash_with_broken_log(harness: Harness, parts: WorkflowContext) -> Run:
    """Let the log break while the first of two commands is on its way, and our process end."""
    with harness.database.transaction() as tx:
        verification.open_log(tx)
    flow = KeyturnService(parts)
    run = harness.request(SetAll(host="lb1", value="dim"))
    assert run.plan
    assert len(run.plan.steps) > 1
    flow.approve_run(run.id, person="olga", digest=run.digest)
    sent = threading.Event()

    def while_it_is_sent(_host: str, _words: str) -> None:
        _break_log(harness)
        sent.set()

    harness.fleet.before_send = while_it_is_sent
    number = harness.dispatcher.enqueued.pop()
    worker = threading.Thread(target=flow.advancer.advance_run, args=(number,), daemon=True)
    worker.start()
    assert sent.wait(PATIENCE)
    if parts.spool is not None:
        _wait_until(lambda: parts.spool is not None and not parts.spool.is_empty)
    flow.close()
    worker.join(PATIENCE)
    assert not worker.is_alive()
    return run


def _start_next_process(harness: Harness, parts: WorkflowContext, spool: Spool) -> None:
    harness.fleet.before_send = lambda _host, _words: None
    _repair_log(harness)
    house = Housekeeping(harness.database, spool=spool)
    KeyturnService(parts).advancer.recover_unfinished_runs()
    house.run_periodic_tasks()


def _list_logging_failures(harness: Harness, run: Run) -> list[change_log.Entry]:
    with harness.database.reading() as tx:
        return [
            e
            for e in change_log.list_entries_of_run(tx, run.id)
            if e.kind == events.LoggingFailed.kind
        ]


def test_run_stops_when_the_change_log_fails_and_the_spool_is_merged(
    harness: Harness, spool: Spool
):
    parts = replace(harness.context, spool=spool)
    run = _crash_with_broken_log(harness, parts)
    assert len(harness.fleet.sent) == 1
    _start_next_process(harness, parts, spool)
    assert harness.get_run(run.id).state is State.UNKNOWN
    with harness.database.reading() as tx:
        records = runs.list_steps(tx, run.id)
        lock = locks.get_lock(tx, "lb1")
        assert verification.verify_log(tx).broken is None
    assert [record.state for record in records] == [StepState.INTENT]
    assert lock
    assert lock.run == run.id
    entries = _list_logging_failures(harness, run)
    assert [(e.facts["step"], e.facts["outcome"]) for e in entries] == [(1, "succeeded")]
    assert spool.is_empty
    # No process ever sends the rest by itself.
    harness.run_queued_work()
    assert len(harness.fleet.sent) == 1


def test_without_the_spool_the_outcome_of_a_step_is_lost(harness: Harness, spool: Spool):
    """The twin: what the process knew is gone with it."""
    run = _crash_with_broken_log(harness, harness.context)
    _start_next_process(harness, harness.context, spool)
    assert harness.get_run(run.id).state is State.UNKNOWN
    assert [e for e in _list_logging_failures(harness, run) if "outcome" in e.facts] == []
