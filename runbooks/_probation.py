"""Put the steps of a change that can lock out on probation."""

import hashlib
from dataclasses import replace

from runbooks._plan import Plan, Step
from runbooks._runbook import AnyRunbook, Change

_ARM = "Arm the probation: the host saves what was, and restores it unless confirmed"
_KEEP = "Keep the change, over a new connection"


def put_on_probation(runbook: AnyRunbook, plan: Plan) -> Plan:
    """Return the plan with the steps that arm the probation and keep the change, if it has one.

    In reverse order, the undos are a probation of their own.
    """
    probation = runbook.get_probation() if isinstance(runbook, Change) else None
    if probation is None or not plan.steps:
        return plan
    host = plan.steps[0].host
    # The same for the plan and for its undo, so that a plan that stopped half-way can be undone.
    commands = [(str(step.do), str(step.undo)) for step in plan.steps]
    change = hashlib.sha256(repr(commands).encode()).hexdigest()[:16]
    arm, keep = probation.arm(change), probation.keep(change)
    steps = [
        Step(_ARM, host, do=arm, undo=keep, undo_title=_KEEP),
        *plan.steps,
        Step(_KEEP, host, do=keep, undo=arm, undo_title=_ARM),
    ]
    return replace(plan, steps=steps)
