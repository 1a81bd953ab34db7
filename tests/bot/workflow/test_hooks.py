"""What the policy or a request asks for and no feature answers is refused, at plan and at gate."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bot.model.plan import RemainingWork
from bot.model.run import RefusedBy, Run, State
from bot.model.tickets import TicketAnswer
from bot.policy import Policy, PolicyDirectory
from bot.service import KeyturnService
from bot.workflow import hooks
from bot.workflow.context import WorkflowContext
from bot.workflow.hooks import Guard, WorkflowHooks
from runbooks import AnyRunbook
from tests.bot.harness import Harness
from tests.ticket_system import require_unreachable_tickets
from tests.toy import SetSwitch, TakeDown

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
TAKE_DOWN = TakeDown(host="lb1", name="lamp", value="on")
PAIR = "redundant: [lb1, lb2]\n"
UNREADABLE_TREE = "top: [x"


def _find_ticket(
    _context: WorkflowContext, _policy: Policy, run: Run, work: RemainingWork
) -> RemainingWork:
    answer = TicketAnswer("CHG1", "scheduled", is_approved=True)
    return replace(work, ticket=answer if run.ticket else None)


PERMITTING = (Guard(RefusedBy.GUARD), Guard(RefusedBy.TICKET, prepare=_find_ticket))


def _with_guards(harness: Harness, guards: Sequence[Guard]) -> Harness:
    """Return the same installation with no other features than these guards."""
    context = replace(
        harness.context,
        policies=PolicyDirectory(harness.policies.path),
        hooks=WorkflowHooks(guards=guards),
    )
    return replace(harness, context=context, service=KeyturnService(context))


def _protect_legs(harness: Harness, *, is_valid: bool) -> None:
    if is_valid:
        inventory = harness.policies.path / "inventory.yaml"
        inventory.write_text(inventory.read_text() + PAIR)
    else:
        (harness.policies.path / "trees").mkdir()
        (harness.policies.path / "trees" / "shop.yaml").write_text(UNREADABLE_TREE)


def _start_unguarded(harness: Harness, runbook: AnyRunbook, ticket: str = "") -> Run:
    """Plan a run while guards permit it, and approve it when there is none any more."""
    planned = _with_guards(harness, PERMITTING).request(runbook, reason="test", ticket=ticket)
    assert planned.state is State.PENDING
    unguarded = _with_guards(harness, ())
    for person in ("olga", "adam")[: planned.required_approvals]:
        unguarded.service.approve_run(planned.id, person=person, digest=planned.digest)
    unguarded.run_queued_work()
    return unguarded.get_run(planned.id)


@pytest.mark.parametrize("is_valid", [True, False])
def test_plan_that_takes_a_leg_of_a_tree_down_is_refused_if_nothing_reads_trees(
    harness: Harness, *, is_valid: bool
):
    _protect_legs(harness, is_valid=is_valid)
    run = _with_guards(harness, ()).request(TAKE_DOWN)
    assert (run.state, run.refused_by) == (State.REFUSED, RefusedBy.GUARD)
    assert "takes lb1 down, and the policy has fault trees, which nothing" in run.summary
    assert _with_guards(harness, ()).request(LAMP_ON).state is State.PENDING


def test_run_that_takes_a_leg_of_a_tree_down_is_refused_at_the_gate_if_nothing_reads_trees(
    harness: Harness,
):
    _protect_legs(harness, is_valid=True)
    ended = _start_unguarded(harness, TAKE_DOWN)
    assert (ended.state, ended.refused_by) == (State.REFUSED, RefusedBy.GUARD)
    assert harness.fleet.sent == []


def test_change_without_a_tree_needs_no_guard(harness: Harness):
    assert _start_unguarded(harness, TAKE_DOWN).state is State.SUCCEEDED


def test_rules_count_no_leg_as_left_if_nothing_reads_trees(harness: Harness):
    _protect_legs(harness, is_valid=True)
    planned = _with_guards(harness, PERMITTING)
    assert planned.request(TAKE_DOWN).required_approvals == 2
    assert planned.request(LAMP_ON).required_approvals == 1


def test_plan_under_a_ticket_is_refused_if_nothing_asks_about_tickets(harness: Harness):
    require_unreachable_tickets(harness.policies.path)
    run = _with_guards(harness, ()).request(LAMP_ON, ticket="CHG1")
    assert (run.state, run.refused_by) == (State.REFUSED, RefusedBy.TICKET)
    assert "names ticket CHG1, and nothing in this installation asks" in run.summary


def test_run_under_a_ticket_is_refused_at_the_gate_if_nothing_asks_about_tickets(
    harness: Harness,
):
    require_unreachable_tickets(harness.policies.path)
    ended = _start_unguarded(harness, LAMP_ON, ticket="CHG1")
    assert (ended.state, ended.refused_by) == (State.REFUSED, RefusedBy.TICKET)
    assert harness.fleet.sent == []


def test_without_the_check_for_guards_a_leg_of_a_tree_is_taken_down(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin of the tests above."""
    _protect_legs(harness, is_valid=True)

    def check_nothing(*_facts: object) -> None:
        pass

    monkeypatch.setattr(hooks, "_check_is_guarded", check_nothing)
    assert _start_unguarded(harness, TAKE_DOWN).state is State.SUCCEEDED
