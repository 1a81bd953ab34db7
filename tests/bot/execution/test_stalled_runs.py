"""A request whose site has no worker is reported until a worker takes it."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.model.run import RequestTerms, Run, State
from bot.model.run_states import describe_outcome
from bot.model.signing import SigningKey
from bot.model.times import HOUR, SECOND
from bot.model.waiting import WaitingFor
from bot.service import KeyturnService
from tests.bot.clock import Clock
from tests.bot.databases import create_postgresql_database
from tests.bot.harness import WEB, Harness, open_harness
from tests.playground.postgres import Postgres
from tests.toy import SetSwitch

pytestmark = pytest.mark.real

SEAL = SigningKey.create()
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


@pytest.fixture
def harness(tmp_path: Path, postgres: Postgres) -> Generator[Harness]:
    database = create_postgresql_database(postgres, SEAL)
    with open_harness(tmp_path, database=database) as harness:
        parts = replace(harness.context, dispatcher=ProcrastinateDispatcher())
        yield replace(harness, context=parts, service=KeyturnService(parts))


def _request_lamp_on(harness: Harness) -> Run:
    return harness.service.request_run(LAMP_ON, RequestTerms("dora", WEB))


def _pass_time(harness: Harness, seconds: int = 20) -> None:
    """Let what waits have waited for so long, and the clock look at it."""
    with harness.database.transaction() as tx:
        tx.sql.execute(
            text("UPDATE procrastinate_events SET at = at - make_interval(secs => :seconds)"),
            {"seconds": seconds},
        )
    harness.service.advancer.wake_stalled_runs()


def test_request_whose_site_has_no_worker_is_reported_once(harness: Harness):
    run = _request_lamp_on(harness)
    for _ in range(3):
        _pass_time(harness)
    stalled = harness.get_run(run.id)
    assert stalled.state is State.PLANNING
    assert stalled.waiting is not None
    assert (stalled.waiting.reason, stalled.waiting.name) == (WaitingFor.WORKER, "main")
    words = describe_outcome(stalled)
    assert words.startswith("waits for a worker: no heartbeat from site main since ")
    assert harness.list_entry_kinds(run) == ["requested", "on hold"]


def test_approved_run_whose_site_has_no_worker_is_reported_until_it_starts(harness: Harness):
    run = _request_lamp_on(harness)
    harness.service.advancer.advance_run(run.id)
    shown = harness.get_run(run.id)
    harness.service.approve_run(run.id, person="olga", digest=shown.digest)
    _pass_time(harness)
    assert harness.get_run(run.id).waiting is not None
    harness.service.advancer.advance_run(run.id)
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_planned_run_no_longer_reports_a_missing_worker(harness: Harness):
    run = _request_lamp_on(harness)
    _pass_time(harness)
    harness.service.advancer.advance_run(run.id)
    waiting = harness.get_run(run.id)
    assert (waiting.state, waiting.waiting) == (State.PENDING, None)


def test_fresh_request_does_not_report_a_missing_worker(harness: Harness):
    """The twin: it is the wait that tells."""
    run = _request_lamp_on(harness)
    _pass_time(harness, seconds=5)
    assert harness.get_run(run.id).waiting is None


def test_run_that_starts_later_needs_no_worker_yet_and_another_process_wakes_it(
    harness: Harness, tmp_path: Path
):
    url = harness.database.engine.url.render_as_string(hide_password=False)
    clock = Clock(url, SEAL)
    with open_harness(tmp_path / "other", database=clock, fleet=harness.fleet) as other:
        run = _request_lamp_on(harness)
        harness.service.advancer.advance_run(run.id)
        with harness.database.reading() as tx:
            start_at = tx.now + HOUR
        digest = harness.get_run(run.id).digest
        harness.service.approve_run(run.id, person="olga", digest=digest, start_at=start_at)
        harness.service.advancer.advance_run(run.id)
        # Another request waits for the worker that is missing.
        _request_lamp_on(harness)
        _pass_time(harness)
        held = harness.get_run(run.id)
        assert held.waiting is not None
        assert held.waiting.reason is WaitingFor.START_TIME

        clock.ahead = HOUR + SECOND
        other.service.advancer.wake_stalled_runs()
        assert run.id in other.dispatcher.enqueued
        for process in (other, harness):
            process.service.advancer.advance_run(run.id)
        assert harness.get_run(run.id).state is State.SUCCEEDED
        assert harness.fleet.sent == [("lb1", "set lamp on")]
