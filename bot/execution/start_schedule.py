"""Beginning: an approved request for a schedule becomes a schedule."""

from bot.audit import change_log
from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Schedule, ScheduleState
from bot.execution import gate
from bot.model.run import Run, State
from bot.policy import NoPolicy
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run


def start_schedule_of_run(parts: WorkflowContext, number: int) -> None:
    """Begin the schedule that a request for one host was approved for."""
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.state is State.READY:
            start_schedule(parts, tx, run)


def start_schedule(parts: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Let it fire from now on. Whoever may do that is looked up again, as before any packet."""
    if run.timing is None or run.proposal is None:
        raise ValueError(f"run {run.id} is not a request for a schedule")
    try:
        gate.authorise_run(parts, tx, run, parts.policies.current())
    except NoPolicy as trouble:
        return end_run(parts, tx, run, State.REFUSED, f"There is no valid policy: {trouble}")
    except gate.GateShut as shut:
        return gate.end_refused_run(parts, tx, run, shut)
    # Held before the log is: who fires it holds it first, and then the log.
    old = schedules.lock_schedule(tx, run.timing.replaces) if run.timing.replaces else None
    keepers = _keepers(parts, tx, old) if old is not None else ()
    # Nobody has approved what takes no approval, nor that it takes another's place.
    if not run.needed and keepers and run.asked_by not in keepers:
        why = f"Schedule {run.timing.replaces} is kept by its owner and its area's"
        names = map(parts.policies.current().name_person, keepers)
        return end_run(parts, tx, run, State.REFUSED, f"{why}: {', '.join(names)}")
    schedule = schedules.add_schedule(
        tx,
        run=run.id,
        owner=run.asked_by,
        timing=run.timing,
        lapses=tx.now + run.proposal.lapse,
    )
    change_log.append_entry(
        tx,
        "scheduled",
        run=run.id,
        person=run.asked_by,
        host=run.host,
        schedule=schedule.id,
        timing=run.timing.document,
        digest=run.digest,
        lapses=schedule.lapses,
    )
    if old is not None and old.standing is not ScheduleState.ENDED:
        why = f"schedule {schedule.id} took its place"
        schedules.set_schedule_state(tx, old, ScheduleState.ENDED, why)
        change_log.append_entry(tx, "schedule ended", run=old.run, schedule=old.id, why=why)
    started = runs.move_run(
        tx, runs.move_run(tx, run, State.STARTING), State.RUNNING, started=tx.now
    )
    return end_run(
        parts, tx, started, State.SUCCEEDED, f"Schedule {schedule.id} fires from now on"
    )


def _keepers(parts: WorkflowContext, tx: Transaction, old: Schedule) -> list[str]:
    """Return who may end a schedule; nobody if it has ended, or is kept by nobody any more."""
    policy = parts.policies.current()
    if old.standing is ScheduleState.ENDED or policy.person(old.owner) is None:
        return []
    area = policy.household.areas.get(runs.get_run(tx, old.run).area)
    return sorted({old.owner, *(area.owners if area else ())})
