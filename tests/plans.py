"""The part of a plan that people approve, which the gate compares before the start."""

from bot.model.plan import PlannedStep
from runbooks import NoUndo, Plan, Step


def list_work(plan: Plan) -> list[PlannedStep]:
    return [_plan_step(step).work for step in plan.steps]


def _plan_step(step: Step) -> PlannedStep:
    undo = step.undo
    return PlannedStep(
        title=step.title,
        host=step.host,
        fingerprint="",
        command=step.do,
        undo=None if isinstance(undo, NoUndo) else undo,
        no_undo_reason=undo.reason if isinstance(undo, NoUndo) else "",
        before=step.before,
        after=step.after,
    )
