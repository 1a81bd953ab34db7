"""What a run waits for, and what refused it, is data: it is put in words where it is shown."""

from pathlib import Path

import pytest

from bot.audit import change_log, events
from bot.db import locks, runs
from bot.model.run import RefusedBy, State
from bot.model.run_states import describe_outcome, is_on_hold
from bot.model.waiting import (
    Waiting,
    WaitingFor,
    describe_waiting,
    encode_waiting,
    parse_waiting,
)
from tests.bot.api.conftest import create_api_harness
from tests.bot.harness import Harness, open_harness
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
TOKEN = "xoxb-123456789012-123456789012-abcdefghijklmnopqrstuvwx"


def _freeze(harness: Harness, name: str) -> None:
    text = f'freezes: [{{name: "{name}", from: "1999-01-01 00:00", until: "2999-01-01 00:00"}}]\n'
    (harness.policies.path / "freezes.yaml").write_text(text)


def test_freeze_whose_name_holds_a_secret_is_recorded_once(harness: Harness):
    _freeze(harness, f"rotation of {TOKEN}")
    held = harness.approve(harness.request(LAMP_ON))
    for _ in range(5):
        harness.service.advancer.wake_stalled_runs()
        harness.run_queued_work()
    assert harness.list_entry_kinds(held).count("on hold") == 1
    shown = describe_outcome(harness.get_run(held.id))
    assert shown.startswith("the edge is frozen until 2999-01-01 00:00 UTC (rotation of ")
    assert TOKEN not in shown


def test_run_held_by_another_freeze_says_so(harness: Harness):
    _freeze(harness, "fair")
    held = harness.approve(harness.request(LAMP_ON))
    policy = harness.policies.get_policy()
    [freeze] = policy.freezes.freezes
    policy.freezes = policy.freezes.model_copy(
        update={"freezes": [freeze.model_copy(update={"name": "audit"})]}
    )
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()
    waiting = harness.get_run(held.id).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.name, waiting.place) == (
        WaitingFor.FREEZE,
        "audit",
        "the edge",
    )


def test_reason_that_reads_like_a_freeze_holds_nothing(harness: Harness):
    """A sentence that only looks like a wait is not one."""
    run = harness.request(LAMP_ON)
    with harness.database.transaction() as tx:
        queued = runs.move_run(tx, runs.get_run(tx, run.id), State.QUEUED, summary="On hold: no")
        assert not is_on_hold(queued)


def test_log_entry_of_a_wait_holds_its_facts_and_no_other_run(harness: Harness):
    first, second = harness.request(LAMP_ON), harness.request(LAMP_ON)
    with harness.database.transaction() as tx:
        locks.take_lock(tx, "lb1", first.id)
    waiting = harness.approve(second).waiting
    assert waiting == Waiting(WaitingFor.LOCK, "lb1", run=first.id, is_run_viewable=True)
    with harness.database.reading() as tx:
        entry = change_log.list_entries_of_run(tx, second.id)[-1]
    assert entry.event == events.OnHold(waiting_for=WaitingFor.LOCK, name="lb1")
    shown = entry.event.describe("", "lb1", str)
    assert shown.detail == "waits for another run, which has locked lb1"
    with harness.database.transaction() as tx:
        locks.release_locks(tx, first.id)
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()
    done = harness.get_run(second.id)
    assert (done.state, done.waiting) == (State.SUCCEEDED, None)


def test_api_returns_what_a_run_waits_for_and_what_refused_it(tmp_path: Path):
    with open_harness(tmp_path) as harness:
        _freeze(harness, "fair")
        held = harness.approve(harness.request(LAMP_ON))
        program = create_api_harness(harness).program("dora", "read")
        seen = program.get(f"/runs/{held.id}").json()
        assert seen["waiting_for"] == {
            "reason": "freeze",
            "name": "fair",
            "run": None,
            "time": "2999-01-01T00:00:00Z",
        }
        assert seen["summary"] == "the edge is frozen until 2999-01-01 00:00 UTC (fair)"
        assert seen["refused_by"] is None


def test_run_that_the_policy_refuses_says_so(harness: Harness):
    shown = harness.request(LAMP_ON)
    rules = harness.policies.path / "policy.cedar"
    forbid = '@id("closed") forbid (principal, action == Action::"request", resource);'
    rules.write_text(f"{rules.read_text()}\n{forbid}\n")
    refused = harness.request(LAMP_ON)
    assert (refused.state, refused.refused_by) == (State.REFUSED, RefusedBy.POLICY)
    assert harness.get_run(shown.id).refused_by is None


def test_run_that_its_runbook_refuses_says_so(harness: Harness):
    harness.fleet.hosts["lb1"]["lamp"] = "stuck"
    refused = harness.request(LAMP_ON)
    assert (refused.state, refused.refused_by) == (State.REFUSED, RefusedBy.RUNBOOK)
    with harness.database.reading() as tx:
        entry = change_log.list_entries_of_run(tx, refused.id)[-1]
    assert isinstance(entry.event, events.Refused)
    assert entry.event.refused_by is RefusedBy.RUNBOOK


@pytest.mark.parametrize("reason", WaitingFor)
def test_every_wait_is_stored_and_described(reason: WaitingFor):
    waiting = Waiting(reason, "lb1, lb2", "the edge", 1_000_000, 4711)
    assert parse_waiting(encode_waiting(waiting)) == waiting
    assert describe_waiting(waiting)
    assert "4711" not in describe_waiting(waiting)
