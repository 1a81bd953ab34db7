"""A request whose site has no worker says so, until somebody takes it."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from bot.db import migrations
from bot.db.database import Database
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.model.run import Run, State
from bot.model.signing import SigningKey
from bot.service import Workflow
from tests.bot.office import WEB, Office, an_office
from tests.playground.postgres import Postgres
from tests.toy import SetSwitch

pytestmark = pytest.mark.real

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


@pytest.fixture
def office(tmp_path: Path, postgres: Postgres) -> Generator[Office]:
    with closing(Database(postgres.new_database(), SigningKey.create())) as database:
        migrations.upgrade_schema(database)
        with an_office(tmp_path, database=database) as office:
            parts = replace(office.parts, dispatcher=ProcrastinateDispatcher())
            yield replace(office, parts=parts, workflow=Workflow(parts))


def _asked(office: Office) -> Run:
    return office.workflow.request_run(LAMP_ON, person="dora", origin=WEB)


def _later(office: Office, seconds: int = 20) -> None:
    """Let what waits have waited for so long, and the clock look at it."""
    with office.database.transaction() as tx:
        tx.sql.execute(
            text("UPDATE procrastinate_events SET at = at - make_interval(secs => :seconds)"),
            {"seconds": seconds},
        )
    office.workflow.wake_stalled_runs()


def test_a_request_whose_site_has_no_worker_says_so_once(office: Office):
    run = _asked(office)
    for _ in range(3):
        _later(office)
    told = office.run(run.id)
    assert told.state is State.PLANNING
    assert told.summary.startswith("waits for a worker: no heartbeat from site main since ")
    assert office.entries(run) == ["requested", "on hold"]


def test_an_approved_run_says_so_too_and_no_more_once_it_has_begun(office: Office):
    run = _asked(office)
    office.workflow.advance_run(run.id)
    shown = office.run(run.id)
    office.workflow.approve_run(run.id, person="olga", digest=shown.digest)
    _later(office)
    assert "no heartbeat from site main" in office.run(run.id).summary
    office.workflow.advance_run(run.id)
    assert office.run(run.id).state is State.SUCCEEDED


def test_what_was_read_after_all_waits_for_people_and_no_worker(office: Office):
    run = _asked(office)
    _later(office)
    office.workflow.advance_run(run.id)
    waiting = office.run(run.id)
    assert (waiting.state, waiting.summary) == (State.PENDING, "")


def test_what_was_just_asked_says_nothing_yet(office: Office):
    """The twin: it is the wait that tells."""
    run = _asked(office)
    _later(office, seconds=5)
    assert office.run(run.id).summary == ""
