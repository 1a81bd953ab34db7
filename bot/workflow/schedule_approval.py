"""The founding request of a schedule: what was approved once, for everything that it fires."""

from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Schedule, ScheduleState
from bot.model.run import Run, State
from bot.workflow.context import WorkflowContext
from runbooks._catalogue import compute_version

_RENEWAL_HINT = "take the schedule over (schedule take {number}) to have it approved anew"


class ScheduleNotApproved(Exception):
    """What a schedule would do now is not what was approved. The message says in what way."""


def get_founding_run(context: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Return the request whose approvals count for a run that a schedule asked for."""
    schedule = schedules.get_schedule(tx, run.origin.schedule_id)
    founding = runs.get_run(tx, schedule.run)
    if schedule.state is not ScheduleState.ACTIVE:
        raise ScheduleNotApproved(
            f"Schedule {schedule.id} is {schedule.state}: {schedule.reason}".strip()
        )
    check_schedule_approval(context, tx, schedule, founding)
    fired = schedules.get_fire_of_run(tx, run.id)
    if fired is None or fired.schedule != schedule.id or run.requested_by != founding.requested_by:
        raise ScheduleNotApproved(f"Schedule {schedule.id} did not ask for this")
    meant = get_request_for_host(tx, founding, fired.host)
    values = {**founding.values, "host": fired.host} if fired.host else founding.values
    if (run.runbook, run.values, run.hosts) != (meant.runbook, values, meant.hosts):
        raise ScheduleNotApproved(f"This is not what schedule {schedule.id} was approved for")
    return founding


def check_schedule_approval(
    context: WorkflowContext, tx: Transaction, schedule: Schedule, founding_run: Run
) -> None:
    """Raise NotApproved if the approval has lapsed, or what it would do has changed since.

    Without approvals there is nothing that could lapse: its owner may have it done at any time.
    """
    if not founding_run.required_approvals:
        return
    again = _RENEWAL_HINT.format(number=schedule.id)
    if tx.now >= schedule.lapses_at:
        raise ScheduleNotApproved(f"The approval of schedule {schedule.id} has lapsed: {again}")
    known = context.runbooks.get(founding_run.runbook)
    proposal = founding_run.plan
    if founding_run.state is not State.SUCCEEDED or proposal is None or known is None:
        raise ScheduleNotApproved(f"Schedule {schedule.id} was not approved: {again}")
    if (proposal.digest, proposal.values) != (founding_run.digest, founding_run.values):
        raise ScheduleNotApproved(f"Schedule {schedule.id} is not what was approved: {again}")
    if compute_version(known) != proposal.runbook_version:
        raise ScheduleNotApproved(
            f"The runbook was changed since schedule {schedule.id} was approved: {again}"
        )
    inventory = context.policies.get_policy().inventory
    for name, fingerprint in proposal.host_keys.items():
        host = inventory.hosts.get(name)
        if host is None or host.fingerprint != fingerprint:
            raise ScheduleNotApproved(f"{name} has another key since it was approved: {again}")


def get_request_for_host(tx: Transaction, founding_run: Run, host: str) -> Run:
    """Return the request for one of its hosts, or for all of them if *host* is ""."""
    if not host:
        return founding_run
    return next(
        (part for part in runs.list_children(tx, founding_run.id) if part.host == host),
        founding_run,
    )
