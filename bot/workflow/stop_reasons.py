"""What a stop comes to for one run, in words."""

from bot.db import runs, stops
from bot.db.database import Transaction
from bot.db.stops import EVERYTHING, Stop
from bot.model.run import Run, StepState
from bot.policy import Policy


def describe_stop(tx: Transaction, run: Run, policy: Policy | None) -> str:
    """Say who has stopped this run, and why; "" if nobody has."""
    found = stops.get_stop_of_run(tx, run)
    return _format_stop(found, policy) if found else ""


def describe_stopped_run(tx: Transaction, run: Run, stopped_by: str) -> str:
    """Say of a stopped run what was done until then, and how to take it back."""
    steps = run.plan.steps if run.plan else ()
    done = [
        steps[each.step_number - 1]
        for each in runs.list_steps(tx, run.id)
        if each.state is not StepState.FAILED
    ]
    if not done:
        return f"{stopped_by}. Nothing was sent."
    before = (
        f"{stopped_by}, before step {len(done) + 1} of {len(steps)}"
        if len(done) < len(steps)
        else stopped_by
    )
    titles = ", ".join(f"“{step.title}”" for step in done)
    lasting = [step for step in done if step.undo is None]
    if lasting:
        how = f"“{lasting[0].title}” cannot be undone: {lasting[0].no_undo_reason}."
    else:
        how = f"Ask for the undo of run {run.id} to take it back."
    return f"{before}. Done: {titles}. {how}"


def describe_stop_of_everything(stop: Stop, policy: Policy | None) -> str:
    """Say that everything is stopped, by whom and why."""
    why = f": {stop.reason}" if stop.reason else ""
    return f"Everything is stopped by {_format_person(stop.person, policy)}{why}"


def _format_stop(stop: Stop, policy: Policy | None) -> str:
    with_all = " with everything else" if stop.what == EVERYTHING else ""
    why = f" ({stop.reason})" if stop.reason else ""
    return f"Stopped{with_all} by {_format_person(stop.person, policy)}{why}"


def _format_person(person: str, policy: Policy | None) -> str:
    if not person:
        return "whoever runs Keyturn"
    return policy.get_person_name(person) if policy else person
