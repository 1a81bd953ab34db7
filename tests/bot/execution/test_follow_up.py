"""What a run has started and goes on after it is told when it is over."""

import pytest
from sqlalchemy import update

from bot.db import follow_ups, runs, tables
from bot.model.run import NEEDS_ATTENTION, Run, State
from connectors.errors import UnreachableError
from tests.bot.office import Office
from tests.toy import SetSwitch, WarmUp


def _begun(office: Office) -> Run:
    run = office.approve(office.ask(WarmUp(host="lb1", name="lamp", value="on")))
    assert run.state is State.SUCCEEDED
    return run


def _look(office: Office) -> None:
    """Let the next look be due, and take it."""
    with office.database.transaction() as tx:
        tx.sql.execute(update(tables.follow_up).values(next_at=tx.now))
    office.workflow.run_due_follow_ups()


def _goes_on(office: Office, run: Run) -> bool:
    with office.database.reading() as tx:
        return follow_ups.has_follow_up(tx, run.id)


def test_the_end_is_told_once_it_is_there(any_office: Office):
    office = any_office
    run = _begun(office)
    office.fleet.hosts["lb1"]["warming"] = "on"
    _look(office)
    assert office.run(run.id).report is None
    office.fleet.hosts["lb1"]["warming"] = "off"
    _look(office)
    report = office.run(run.id).report
    assert report is not None
    assert report.summary == "warm now"
    assert office.entries(run)[-1] == "followed up"
    assert not _goes_on(office, run)
    _look(office)
    assert office.entries(run).count("followed up") == 1


@pytest.mark.parametrize(("became", "shown"), [("burnt", NEEDS_ATTENTION), ("off", "succeeded")])
def test_what_did_not_end_well_stands_so_in_lists(office: Office, became: str, shown: str):
    run = _begun(office)
    office.fleet.hosts["lb1"]["warming"] = became
    _look(office)
    with office.database.reading() as tx:
        assert runs.list_runs(tx, [run.id])[0].status == shown


def test_a_look_comes_when_it_is_due_and_not_before(office: Office):
    run = _begun(office)
    asked = office.fleet.asked
    office.workflow.run_due_follow_ups()
    assert (office.fleet.asked, _goes_on(office, run)) == (asked, True)


def test_a_host_that_does_not_answer_is_looked_at_again(office: Office):
    run = _begun(office)

    def silent(_host: str) -> None:
        raise UnreachableError("no answer")

    office.fleet.before_ask = silent
    _look(office)
    assert _goes_on(office, run)
    office.fleet.before_ask = lambda _host: None
    _look(office)
    assert not _goes_on(office, run)


def test_what_has_no_end_to_wait_for_is_not_followed(office: Office):
    run = office.approve(office.ask(SetSwitch(host="lb1", name="lamp", value="on")))
    assert not _goes_on(office, run)


def test_an_undo_is_not_followed(office: Office):
    run = _begun(office)
    undone = office.workflow.request_undo(run.id, person="dora", origin=run.origin)
    office.work()
    office.approve(office.run(undone.id))
    assert office.run(undone.id).state is State.SUCCEEDED
    assert not _goes_on(office, undone)
