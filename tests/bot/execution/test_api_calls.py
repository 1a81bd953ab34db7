"""Changes by a management interface, which leave no marker on the host and sometimes no state."""

import threading
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.db import locks
from bot.execution.executor import Executor
from bot.execution.reconcile import Reconciler
from bot.model.run import Run, State
from bot.service import KeyturnService
from connectors.command import NO_HOOKS, Answer, ApiCall, Command, QueryRunner, RunHooks
from connectors.errors import UnknownOutcomeError
from runbooks import Change, Host, NoUndo, Plan, Step
from tests.bot.harness import Harness, open_harness
from tests.toy import SHOW, Switches, ToyFleet

RESET = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"


class PutOut(Change[Switches], words="toy out", example="lb1"):
    """Put a lamp out by the interface that manages its host."""

    host: Host

    def read(self, ask: QueryRunner) -> Switches:
        return ask(self.host, SHOW)

    def plan(self, switches: Switches) -> Plan:
        if switches["lamp"] == "out":
            return Plan("the lamp is out")
        call = ApiCall(RESET, "POST", '{"ResetType": "ForceOff"}', server="bmc:443")
        return Plan("the lamp is lit", [Step("Do it", self.host, call, NoUndo("gone"))])


class Blink(PutOut, words="toy blink", example="lb1"):
    """Let a lamp blink, which leaves no trace."""

    def plan(self, switches: Switches) -> Plan:
        return super().plan({**switches, "lamp": "on"})

    def plan_after(self, switches: Switches) -> Plan:
        return Plan(f"the lamp has blinked, and is {switches['lamp']}")


class ManagedFleet(ToyFleet):
    """A toy fleet whose management interfaces put lamps out."""

    def run_command(
        self,
        host: str,
        command: Command,
        /,
        *,
        fingerprint: str = "",  # noqa: ARG002 - of the protocol
        hooks: RunHooks = NO_HOOKS,  # noqa: ARG002 - of the protocol
    ) -> Answer:
        assert isinstance(command, ApiCall)
        self.before_send(host, str(command))
        self.sent.append((host, str(command)))
        self.hosts[host]["lamp"] = "out"
        self.after_send(host, str(command))
        return Answer(0, "")


@pytest.fixture
def harness(tmp_path: Path) -> Generator[Harness]:
    with open_harness(tmp_path) as made:
        runbooks = {each.words: each for each in (PutOut, Blink)}
        fleet = ManagedFleet()
        context = replace(made.context, fleet=fleet, runbooks=runbooks)
        yield replace(made, service=KeyturnService(context), context=context, fleet=fleet)


def lose_answer(*_: str) -> None:
    raise UnknownOutcomeError("the BMC did not answer")


def reconcile(harness: Harness, run: Run) -> Run:
    executor = Executor(harness.context, threading.Event())
    Reconciler(harness.context, executor).reconcile_run(run.id)
    return harness.get_run(run.id)


def test_api_call_is_sent_as_it_was_planned_and_approved(harness: Harness):
    run = harness.request(PutOut(host="lb1"))
    assert run.plan
    (step,) = run.plan.steps
    assert isinstance(step.command, ApiCall)
    assert "\nserver bmc:443\n" in run.plan.sections[0].text
    run = harness.approve(run)
    assert (run.state, run.summary) == (State.SUCCEEDED, "Verified: the lamp is out")
    assert harness.fleet.sent == [("lb1", f'POST {RESET} {{"ResetType": "ForceOff"}}')]


def test_act_without_a_lasting_state_is_verified_by_its_succeeded_step(harness: Harness):
    run = harness.approve(harness.request(Blink(host="lb1")))
    assert run.state is State.SUCCEEDED
    assert run.summary == "Verified: the lamp has blinked, and is out"


def test_api_call_with_unknown_outcome_is_verified_by_the_state_without_a_marker(
    harness: Harness,
):
    harness.fleet.after_send = lose_answer
    run = harness.approve(harness.request(PutOut(host="lb1")))
    assert run.state is State.UNKNOWN
    run = reconcile(harness, run)
    assert (run.state, run.summary) == (State.SUCCEEDED, "Verified: the lamp is out")
    assert harness.fleet.recalled == 0


def test_act_without_a_lasting_state_and_with_unknown_outcome_needs_an_owner(harness: Harness):
    harness.fleet.before_send = lose_answer
    run = harness.approve(harness.request(Blink(host="lb1")))
    run = reconcile(harness, run)
    assert run.state is State.UNKNOWN
    assert "until" in run.summary
    with harness.database.reading() as tx:
        held = locks.get_lock(tx, "lb1")
    assert held is not None
