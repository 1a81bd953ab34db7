"""The founding request of a schedule: what was approved once, for everything that it fires."""

from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Schedule, ScheduleState
from bot.model.run import Run, State
from bot.workflow.context import WorkflowContext
from runbooks._catalogue import compute_version

_AGAIN = "take the schedule over (schedule take {number}) to have it approved anew"


class NotApproved(Exception):
    """What a schedule would do now is not what was approved. The message says in what way."""


def get_approved_request(parts: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Return the request whose approvals count for a run that a schedule asked for."""
    schedule = schedules.get_schedule(tx, run.origin.schedule)
    founding = runs.get_run(tx, schedule.run)
    if schedule.standing is not ScheduleState.ACTIVE:
        raise NotApproved(f"Schedule {schedule.id} is {schedule.standing}: {schedule.why}".strip())
    check_schedule_approval(parts, tx, schedule, founding)
    fired = schedules.get_fire_of_run(tx, run.id)
    if fired is None or fired.schedule != schedule.id or run.asked_by != founding.asked_by:
        raise NotApproved(f"Schedule {schedule.id} did not ask for this")
    meant = get_request_for_host(tx, founding, fired.host)
    values = {**founding.fields, "host": fired.host} if fired.host else founding.fields
    if (run.words, run.fields, run.hosts) != (meant.words, values, meant.hosts):
        raise NotApproved(f"This is not what schedule {schedule.id} was approved for")
    return founding


def check_schedule_approval(
    parts: WorkflowContext, tx: Transaction, schedule: Schedule, founding: Run
) -> None:
    """Raise NotApproved if the approval has lapsed, or what it would do has changed since.

    Without approvals there is nothing that could lapse: its owner may have it done at any time.
    """
    if not founding.needed:
        return
    again = _AGAIN.format(number=schedule.id)
    if tx.now >= schedule.lapses:
        raise NotApproved(f"The approval of schedule {schedule.id} has lapsed: {again}")
    known = parts.runbooks.get(founding.words)
    proposal = founding.proposal
    if founding.state is not State.SUCCEEDED or proposal is None or known is None:
        raise NotApproved(f"Schedule {schedule.id} was not approved: {again}")
    if (proposal.digest, proposal.fields) != (founding.digest, founding.fields):
        raise NotApproved(f"Schedule {schedule.id} is not what was approved: {again}")
    if compute_version(known) != proposal.runbook_version:
        raise NotApproved(
            f"The runbook was changed since schedule {schedule.id} was approved: {again}"
        )
    inventory = parts.policies.current().inventory
    for name, fingerprint in proposal.keys.items():
        host = inventory.hosts.get(name)
        if host is None or host.fingerprint != fingerprint:
            raise NotApproved(f"{name} has another key since it was approved: {again}")


def get_request_for_host(tx: Transaction, founding: Run, host: str) -> Run:
    """Return the request for one of its hosts, or for all of them if *host* is ""."""
    if not host:
        return founding
    return next(
        (part for part in runs.list_children(tx, founding.id) if part.host == host), founding
    )
