"""Check the approval of a schedule, which covers all of its runs."""

from bot.db import runs
from bot.db.database import Transaction
from bot.features.schedules import rows as schedules
from bot.features.schedules.rows import Schedule, ScheduleState
from bot.model.run import Run, State
from bot.workflow.context import WorkflowContext
from runbooks._catalogue import compute_version

_RENEWAL_HINT = "take over the schedule (schedule take {number}) to have it approved again"


class ScheduleNotApproved(Exception):
    """The approval of a schedule does not cover the run. The message says why."""


def get_founding_run(context: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Return the request whose approvals count for a run of a schedule."""
    schedule = schedules.get_schedule(tx, run.origin.schedule_id)
    founding = runs.get_run(tx, schedule.run)
    if schedule.state is not ScheduleState.ACTIVE:
        raise ScheduleNotApproved(
            f"Schedule {schedule.id} is {schedule.state}: {schedule.reason}".strip()
        )
    check_schedule_approval(context, tx, schedule, founding)
    fired = schedules.get_fire_of_run(tx, run.id)
    if fired is None or fired.schedule != schedule.id or run.requested_by != founding.requested_by:
        raise ScheduleNotApproved(f"Schedule {schedule.id} did not request this run")
    meant = get_request_for_host(tx, founding, fired.host)
    values = {**founding.values, "host": fired.host} if fired.host else founding.values
    if (run.runbook, run.values, run.hosts) != (meant.runbook, values, meant.hosts):
        raise ScheduleNotApproved(f"Schedule {schedule.id} was not approved for this run")
    return founding


def check_schedule_approval(
    context: WorkflowContext, tx: Transaction, schedule: Schedule, founding_run: Run
) -> None:
    """Raise ScheduleNotApproved if the approval has lapsed or does not match any more.

    A schedule that needs no approval cannot lapse: its owner may request the runs at any time.
    """
    if not founding_run.required_approvals:
        return
    hint = _RENEWAL_HINT.format(number=schedule.id)
    if tx.now >= schedule.lapses_at:
        raise ScheduleNotApproved(f"The approval of schedule {schedule.id} has lapsed: {hint}")
    known = context.runbooks.get(founding_run.runbook)
    proposal = founding_run.plan
    if founding_run.state is not State.SUCCEEDED or proposal is None or known is None:
        raise ScheduleNotApproved(f"Schedule {schedule.id} was not approved: {hint}")
    if (proposal.digest, proposal.values) != (founding_run.digest, founding_run.values):
        raise ScheduleNotApproved(f"Schedule {schedule.id} differs from what was approved: {hint}")
    if compute_version(known) != proposal.runbook_version:
        raise ScheduleNotApproved(
            f"The runbook has changed since schedule {schedule.id} was approved: {hint}"
        )
    inventory = context.policies.get_policy().inventory
    for name, fingerprint in proposal.host_keys.items():
        host = inventory.hosts.get(name)
        if host is None or host.fingerprint != fingerprint:
            raise ScheduleNotApproved(
                f"The host key of {name} has changed since schedule {schedule.id} was approved: "
                f"{hint}"
            )


def get_request_for_host(tx: Transaction, founding_run: Run, host: str) -> Run:
    """Return the request for one host of a schedule, or for all of them if *host* is ""."""
    if not host:
        return founding_run
    return next(
        (child for child in runs.list_children(tx, founding_run.id) if child.host == host),
        founding_run,
    )
