"""Executes a runbook as the engine does, without the gate."""

from typing import Any

from connectors.fleet import Fleet
from runbooks import Change, NoUndo, Plan, put_on_probation
from tests.plans import list_work


def make_plan(fleet: Fleet, change: Change[Any]) -> Plan:
    """Read and plan, with a probation where the change has one."""
    return put_on_probation(change, change.plan(change.read(fleet.run_query)))


def execute_plan(fleet: Fleet, change: Change[Any]) -> Plan:
    """Read, plan, tell every step, and prove by reading again that nothing is left to do."""
    plan = make_plan(fleet, change)
    assert plan.steps, f"nothing to do: {plan.current_state}"
    for step in plan.steps:
        fleet.run_command(step.host, fleet.resolve_command(step.host, step.do))
    left = change.plan(change.read(fleet.run_query))
    assert not left.steps, f"still to be done: {left.current_state}"
    return plan


def undo_plan(fleet: Fleet, change: Change[Any], plan: Plan) -> None:
    """Tell the undo of every step, the last first, and see that the same work is there again."""
    for step in reversed(plan.steps):
        assert not isinstance(step.undo, NoUndo), step.undo
        fleet.run_command(step.host, fleet.resolve_command(step.host, step.undo))
    assert list_work(make_plan(fleet, change)) == list_work(plan)
