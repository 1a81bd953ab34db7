"""Start a schedule once its request is approved."""

from bot.audit import change_log, events
from bot.db import runs
from bot.db.database import Transaction
from bot.execution import gate
from bot.features.schedules import rows as schedules
from bot.features.schedules.rows import Schedule, ScheduleState
from bot.model.run import RefusedBy, Run, State
from bot.policy import NoPolicyError
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run


def start_schedule_of_run(context: WorkflowContext, number: int) -> None:
    """Start the schedule of an approved request for one host."""
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.state is State.QUEUED:
            start_schedule(context, tx, run)


def start_schedule(context: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Start the schedule. The gate authorises it again, as before each step."""
    if run.timing is None or run.plan is None:
        raise ValueError(f"run {run.id} is not a request for a schedule")
    try:
        gate.authorise_run(context, tx, run, context.policies.get_policy())
    except NoPolicyError as error:
        why = f"There is no valid policy: {error}"
        return end_run(context, tx, run, State.REFUSED, why, refused_by=RefusedBy.ERROR)
    except gate.GateRefused as refusal:
        return gate.end_refused_run(context, tx, run, refusal)
    # The schedule is locked before the log, in the same order as when it fires.
    old = (
        schedules.lock_schedule(tx, run.timing.replaces_schedule)
        if run.timing.replaces_schedule
        else None
    )
    managers = _list_managers(context, tx, old) if old is not None else ()
    # No one has approved that a request without approvals replaces another's schedule.
    if not run.required_approvals and managers and run.requested_by not in managers:
        why = f"Only the owners can replace schedule {run.timing.replaces_schedule}"
        names = map(context.policies.get_policy().get_person_name, managers)
        why = f"{why}: {', '.join(names)}"
        return end_run(context, tx, run, State.REFUSED, why, refused_by=RefusedBy.SCHEDULE)
    schedule = schedules.add_schedule(
        tx,
        run=run.id,
        owner=run.requested_by,
        timing=run.timing,
        lapses=tx.now + run.plan.schedule_lifetime,
    )
    change_log.append_entry(
        tx,
        events.Scheduled(
            schedule=schedule.id,
            timing=run.timing.document,
            digest=run.digest,
            lapses_at=schedule.lapses_at,
        ),
        run=run,
        person=run.requested_by,
    )
    if old is not None and old.state is not ScheduleState.ENDED:
        why = f"replaced by schedule {schedule.id}"
        schedules.set_schedule_state(tx, old, ScheduleState.ENDED, why)
        change_log.append_entry(tx, events.ScheduleEnded(schedule=old.id, reason=why), run=old.run)
    started = runs.move_run(
        tx, runs.move_run(tx, run, State.STARTING), State.RUNNING, started_at=tx.now
    )
    return end_run(context, tx, started, State.SUCCEEDED, f"Schedule {schedule.id} is active")


def _list_managers(context: WorkflowContext, tx: Transaction, schedule: Schedule) -> list[str]:
    """Return who may end a schedule; empty if it has ended or its owner left the policy."""
    policy = context.policies.get_policy()
    if schedule.state is ScheduleState.ENDED or policy.find_person(schedule.owner) is None:
        return []
    area = policy.organisation.areas.get(runs.get_run(tx, schedule.run).area)
    return sorted({schedule.owner, *(area.owners if area else ())})
