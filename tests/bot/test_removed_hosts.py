"""Hosts that are removed from the inventory while runs on them are pending, done or unknown."""

import pytest

from bot.db import locks, runs
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.model.run import RequestTerms, Run, State
from bot.queries import pending
from connectors.errors import UnknownOutcomeError
from connectors.step_status import NO_STATUS
from tests.bot.harness import WEB, Harness
from tests.toy import SetSwitch

HOSTS = ("lb1", "lb2")


def _remove_from_inventory(harness: Harness, name: str) -> None:
    file = harness.policies.path / "inventory.yaml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith(f"  {name}:")))


def _request_on_both_hosts(harness: Harness) -> Run:
    requests = [SetSwitch(host=name, name="lamp", value="on") for name in HOSTS]
    run = harness.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    harness.run_queued_work()
    return harness.get_run(run.id)


class TestUnknownOutcome:
    """The outcome of a step is unknown, and nobody can query the host any more."""

    @pytest.fixture
    def lost(self, harness: Harness) -> Run:
        def cut(_host: str, _words: str) -> None:
            raise UnknownOutcomeError("it hung up")

        harness.fleet.before_send = cut
        harness.fleet.recalls = lambda: NO_STATUS
        run = harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
        assert run.state is State.UNKNOWN
        _remove_from_inventory(harness, "lb1")
        return run

    def test_owner_resolves_an_unknown_outcome_on_a_removed_host(
        self, harness: Harness, lost: Run
    ):
        harness.service.resolve_run(
            lost.id, person="olga", succeeded=False, reason="it was scrapped"
        )
        assert harness.get_run(lost.id).state is State.FAILED
        with harness.database.reading() as tx:
            assert locks.get_lock(tx, "lb1") is None

    def test_unknown_outcome_on_a_removed_host_is_pending_for_its_owner(
        self, harness: Harness, lost: Run
    ):
        policy = harness.policies.get_policy()
        with harness.database.reading() as tx:
            (waiting,) = pending.read_inbox(tx, policy, "olga").runs
            assert waiting.id == lost.id
            assert not pending.read_inbox(tx, policy, "stan").runs

    def test_only_an_owner_resolves_an_unknown_outcome_on_a_removed_host(
        self, harness: Harness, lost: Run
    ):
        with pytest.raises(NotAllowed, match="only an owner of the edge"):
            harness.service.resolve_run(
                lost.id, person="stan", succeeded=False, reason="it was scrapped"
            )


def test_child_run_is_refused_when_its_host_was_removed_from_the_inventory(harness: Harness):
    run = _request_on_both_hosts(harness)
    harness.fleet.after_send = lambda _host, _words: _remove_from_inventory(harness, "lb2")
    ended = harness.approve(run)
    with harness.database.reading() as tx:
        states = [part.state for part in runs.list_children(tx, run.id)]
    assert (ended.state, states) == (State.FAILED, [State.SUCCEEDED, State.REFUSED])
    assert "lb2 is not in the inventory" in ended.summary


def test_undo_is_refused_when_its_host_was_removed_from_the_inventory(harness: Harness):
    done = harness.approve(_request_on_both_hosts(harness))
    assert done.state is State.SUCCEEDED
    _remove_from_inventory(harness, "lb2")
    with pytest.raises(InvalidRequestError, match="no longer in the inventory: lb2"):
        harness.service.request_undo(done.id, RequestTerms("dora", WEB))
