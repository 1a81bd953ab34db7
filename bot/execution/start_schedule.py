"""Beginning: an approved request for a schedule becomes a schedule."""

from bot.audit import change_log
from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Schedule, ScheduleState
from bot.execution import gate
from bot.model.run import Run, State
from bot.policy import NoPolicyError
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run


def start_schedule_of_run(context: WorkflowContext, number: int) -> None:
    """Begin the schedule that a request for one host was approved for."""
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.state is State.QUEUED:
            start_schedule(context, tx, run)


def start_schedule(context: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Let it fire from now on. Whoever may do that is looked up again, as before any packet."""
    if run.timing is None or run.plan is None:
        raise ValueError(f"run {run.id} is not a request for a schedule")
    try:
        gate.authorise_run(context, tx, run, context.policies.get_policy())
    except NoPolicyError as trouble:
        return end_run(context, tx, run, State.REFUSED, f"There is no valid policy: {trouble}")
    except gate.GateRefused as shut:
        return gate.end_refused_run(context, tx, run, shut)
    # Held before the log is: who fires it holds it first, and then the log.
    old = (
        schedules.lock_schedule(tx, run.timing.replaces_schedule)
        if run.timing.replaces_schedule
        else None
    )
    keepers = _list_managers(context, tx, old) if old is not None else ()
    # Nobody has approved what takes no approval, nor that it takes another's place.
    if not run.required_approvals and keepers and run.requested_by not in keepers:
        why = f"Schedule {run.timing.replaces_schedule} is kept by its owner and its area's"
        names = map(context.policies.get_policy().get_person_name, keepers)
        return end_run(context, tx, run, State.REFUSED, f"{why}: {', '.join(names)}")
    schedule = schedules.add_schedule(
        tx,
        run=run.id,
        owner=run.requested_by,
        timing=run.timing,
        lapses=tx.now + run.plan.schedule_lifetime,
    )
    change_log.append_entry(
        tx,
        "scheduled",
        run=run.id,
        person=run.requested_by,
        host=run.host,
        schedule=schedule.id,
        timing=run.timing.document,
        digest=run.digest,
        lapses_at=schedule.lapses_at,
    )
    if old is not None and old.state is not ScheduleState.ENDED:
        why = f"schedule {schedule.id} took its place"
        schedules.set_schedule_state(tx, old, ScheduleState.ENDED, why)
        change_log.append_entry(tx, "schedule ended", run=old.run, schedule=old.id, reason=why)
    started = runs.move_run(
        tx, runs.move_run(tx, run, State.STARTING), State.RUNNING, started_at=tx.now
    )
    return end_run(
        context, tx, started, State.SUCCEEDED, f"Schedule {schedule.id} fires from now on"
    )


def _list_managers(context: WorkflowContext, tx: Transaction, schedule: Schedule) -> list[str]:
    """Return who may end a schedule; nobody if it has ended, or is kept by nobody any more."""
    policy = context.policies.get_policy()
    if schedule.state is ScheduleState.ENDED or policy.find_person(schedule.owner) is None:
        return []
    area = policy.organisation.areas.get(runs.get_run(tx, schedule.run).area)
    return sorted({schedule.owner, *(area.owners if area else ())})
