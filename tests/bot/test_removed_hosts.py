"""Hosts that leave the inventory while something is asked, done or unknown there."""

import pytest

from bot.db import locks, runs
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.model.run import Run, State
from bot.queries import pending
from connectors.errors import UnknownOutcomeError
from connectors.step_status import NO_STATUS
from tests.bot.office import WEB, Office
from tests.toy import SetSwitch

HOSTS = ("lb1", "lb2")


def _leaves(office: Office, name: str) -> None:
    file = office.policies.path / "inventory.yaml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith(f"  {name}:")))


def _on_both(office: Office) -> Run:
    requests = [SetSwitch(host=name, name="lamp", value="on") for name in HOSTS]
    run = office.workflow.request_fanout_run(
        requests, host_pattern="lb*", person="dora", origin=WEB
    )
    office.work()
    return office.run(run.id)


class TestUnknown:
    """A step was lost there, and nobody can ask the host any more."""

    @pytest.fixture
    def lost(self, office: Office) -> Run:
        def cut(_host: str, _words: str) -> None:
            raise UnknownOutcomeError("it hung up")

        office.fleet.before_tell = cut
        office.fleet.recalls = lambda: NO_STATUS
        run = office.approve(office.ask(SetSwitch(host="lb1", name="lamp", value="on")))
        assert run.state is State.UNKNOWN
        _leaves(office, "lb1")
        return run

    def test_an_owner_of_the_area_settles_it_all_the_same(self, office: Office, lost: Run):
        office.workflow.resolve_run(
            lost.id, person="olga", succeeded=False, reason="it was scrapped"
        )
        assert office.run(lost.id).state is State.FAILED
        with office.database.reading() as tx:
            assert locks.get_lock(tx, "lb1") is None

    def test_and_reads_that_it_waits_for_them(self, office: Office, lost: Run):
        policy = office.policies.get_policy()
        with office.database.reading() as tx:
            assert [run.id for run in pending.list_runs_awaiting_person(tx, policy, "olga")] == [
                lost.id
            ]
            assert pending.list_runs_awaiting_person(tx, policy, "stan") == []

    def test_nobody_else_does(self, office: Office, lost: Run):
        with pytest.raises(NotAllowed, match="only an owner of the edge"):
            office.workflow.resolve_run(
                lost.id, person="stan", succeeded=False, reason="it was scrapped"
            )


def test_a_part_whose_host_has_left_is_refused_and_nothing_is_at_fault(office: Office):
    run = _on_both(office)
    office.fleet.after_tell = lambda _host, _words: _leaves(office, "lb2")
    ended = office.approve(run)
    with office.database.reading() as tx:
        states = [part.state for part in runs.list_children(tx, run.id)]
    assert (ended.state, states) == (State.FAILED, [State.SUCCEEDED, State.REFUSED])
    assert "lb2 is not in the inventory" in ended.summary


def test_what_was_done_there_is_not_taken_back(office: Office):
    done = office.approve(_on_both(office))
    assert done.state is State.SUCCEEDED
    _leaves(office, "lb2")
    with pytest.raises(InvalidRequestError, match="no longer in the inventory: lb2"):
        office.workflow.request_undo(done.id, person="dora", origin=WEB)
