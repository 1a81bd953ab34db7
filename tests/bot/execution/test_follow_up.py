"""Background tasks that a run starts are followed up and reported when they end."""

import pytest
from sqlalchemy import update

from bot.db import follow_ups, runs, tables
from bot.model.run import NEEDS_ATTENTION, RequestTerms, Run, State
from connectors.errors import UnreachableError
from tests.bot.harness import Harness
from tests.toy import SetSwitch, WarmUp


def _start_warm_up(harness: Harness) -> Run:
    run = harness.approve(harness.request(WarmUp(host="lb1", name="lamp", value="on")))
    assert run.state is State.SUCCEEDED
    return run


def _run_next_follow_up(harness: Harness) -> None:
    """Let the next look be due, and take it."""
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.follow_up).values(next_at=tx.now))
    harness.service.advancer.run_due_follow_ups()


def _has_follow_up(harness: Harness, run: Run) -> bool:
    with harness.database.reading() as tx:
        return follow_ups.has_follow_up(tx, run.id)


def test_follow_up_reports_the_end_of_a_background_task_once(db_harness: Harness):
    harness = db_harness
    run = _start_warm_up(harness)
    harness.fleet.hosts["lb1"]["warming"] = "on"
    _run_next_follow_up(harness)
    assert harness.get_run(run.id).report is None
    harness.fleet.hosts["lb1"]["warming"] = "off"
    _run_next_follow_up(harness)
    report = harness.get_run(run.id).report
    assert report is not None
    assert report.summary == "warm now"
    assert harness.list_entry_kinds(run)[-1] == "followed up"
    assert not _has_follow_up(harness, run)
    _run_next_follow_up(harness)
    assert harness.list_entry_kinds(run).count("followed up") == 1


@pytest.mark.parametrize(("became", "shown"), [("burnt", NEEDS_ATTENTION), ("off", "succeeded")])
def test_run_whose_follow_up_found_a_failure_needs_attention_in_lists(
    harness: Harness, became: str, shown: str
):
    run = _start_warm_up(harness)
    harness.fleet.hosts["lb1"]["warming"] = became
    _run_next_follow_up(harness)
    with harness.database.reading() as tx:
        assert runs.list_runs(tx, [run.id])[0].status == shown


def test_follow_up_reads_the_host_only_when_due(harness: Harness):
    run = _start_warm_up(harness)
    asked = harness.fleet.asked
    harness.service.advancer.run_due_follow_ups()
    assert (harness.fleet.asked, _has_follow_up(harness, run)) == (asked, True)


def test_follow_up_is_repeated_when_the_host_is_unreachable(harness: Harness):
    run = _start_warm_up(harness)

    def silent(_host: str) -> None:
        raise UnreachableError("no answer")

    harness.fleet.before_query = silent
    _run_next_follow_up(harness)
    assert _has_follow_up(harness, run)
    harness.fleet.before_query = lambda _host: None
    _run_next_follow_up(harness)
    assert not _has_follow_up(harness, run)


def test_run_without_a_background_task_has_no_follow_up(harness: Harness):
    run = harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
    assert not _has_follow_up(harness, run)


def test_undo_has_no_follow_up(harness: Harness):
    run = _start_warm_up(harness)
    undone = harness.service.request_undo(run.id, RequestTerms("dora", run.origin))
    harness.run_queued_work()
    harness.approve(harness.get_run(undone.id))
    assert harness.get_run(undone.id).state is State.SUCCEEDED
    assert not _has_follow_up(harness, undone)
