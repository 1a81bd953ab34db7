"""Describe stops: who stopped a run or everything, and what was done until then."""

from bot.db import runs, stops
from bot.db.database import Transaction
from bot.db.stops import EVERYTHING, Stop
from bot.model.run import Run, StepState
from bot.model.text import capitalise_sentence
from bot.policy import Policy


def describe_stop(tx: Transaction, run: Run, policy: Policy | None) -> str:
    """Return who stopped this run, and why; "" if it is not stopped."""
    found = stops.get_stop_of_run(tx, run)
    return _format_stop(found, policy) if found else ""


def describe_stopped_run(tx: Transaction, run: Run, stopped_by: str) -> str:
    """Describe what a stopped run had done, and how to undo it."""
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
    irreversible = [step for step in done if step.undo is None]
    if irreversible:
        how = f"“{irreversible[0].title}” cannot be undone: {irreversible[0].no_undo_reason}."
    else:
        how = f"To revert it, request the undo of run {run.id}."
    return f"{before}. Done: {titles}. {how}"


def describe_stop_of_everything(stop: Stop, policy: Policy | None) -> str:
    """Return that everything is stopped, by whom and why."""
    why = f": {stop.reason}" if stop.reason else ""
    return f"Everything is stopped by {_format_person(stop.person, policy)}{why}"


def describe_active_stop(tx: Transaction, policy: Policy | None) -> str:
    """Return that everything is stopped, by whom and why; "" if it is not."""
    stop = stops.get_stop_of_everything(tx)
    return describe_stop_of_everything(stop, policy) if stop else ""


def _format_stop(stop: Stop, policy: Policy | None) -> str:
    what = "everything" if stop.what == EVERYTHING else "it"
    why = f" ({stop.reason})" if stop.reason else ""
    return f"{capitalise_sentence(_format_person(stop.person, policy))} stopped {what}{why}"


def _format_person(person: str, policy: Policy | None) -> str:
    if not person:
        return "an administrator on the command line"
    return policy.get_person_name(person) if policy else person
