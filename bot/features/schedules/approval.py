"""Start an approved schedule, and check that its approval covers a run: for service and gate."""

from bot.audit import change_log, events
from bot.audit.followed_log import find_missing_entry_of_run, follow_log
from bot.audit.inclusion import list_vouched_entries
from bot.db import runs
from bot.db.database import Transaction
from bot.execution import gate
from bot.features.schedules import rows
from bot.features.schedules.rows import Schedule
from bot.model.canonical import encode_canonical
from bot.model.run import RefusedBy, Run, State
from bot.model.schedule import ScheduleState
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from runbooks._catalogue import compute_version

_ACTIVE_SCHEDULE_KINDS = frozenset({events.Scheduled.kind, events.ScheduleResumed.kind})
_SCHEDULE_KINDS = (
    *sorted(_ACTIVE_SCHEDULE_KINDS),
    events.ScheduleSuspended.kind,
    events.ScheduleLapsed.kind,
    events.ScheduleEnded.kind,
)

_RENEWAL_HINT = "take over the schedule (schedule take {number}) to have it approved again"


class ScheduleNotApproved(Exception):
    """The approval of a schedule does not cover the run. The message says why."""


def get_founding_run(context: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Return the request whose approvals count for a run of a schedule. Raises GateRefused."""
    schedule = rows.get_schedule(tx, run.origin.schedule_id)
    try:
        founding = _get_founding_run(context, tx, schedule, run)
    except ScheduleNotApproved as refusal:
        raise gate.GateRefused(State.REFUSED, str(refusal), RefusedBy.SCHEDULE) from None
    if doubt := _find_mismatch_of_fire(tx, schedule, run):
        raise gate.build_evidence_refusal(run, doubt)
    return founding


def _get_founding_run(
    context: WorkflowContext, tx: Transaction, schedule: Schedule, run: Run
) -> Run:
    founding = runs.get_run(tx, schedule.run)
    if schedule.state is not ScheduleState.ACTIVE:
        raise ScheduleNotApproved(
            f"Schedule {schedule.id} is {schedule.state}: {schedule.reason}".strip()
        )
    check_schedule_approval(context, tx, schedule, founding)
    fired = rows.get_fire_of_run(tx, run.id)
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
    is_same = proposal.has_digest(founding_run.digest) and proposal.values == founding_run.values
    if not is_same:
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


def _find_mismatch_of_fire(tx: Transaction, schedule: Schedule, run: Run) -> str:
    """Return what the log does not confirm of a schedule and of a run that it fired."""
    known = follow_log(tx)
    read = change_log.list_entries_of_run(tx, schedule.run)
    if missing := find_missing_entry_of_run(known, schedule.run, read):
        return missing
    logged = [
        entry
        for entry in read
        if entry.kind in _SCHEDULE_KINDS and entry.event.get_fact("schedule") == schedule.id
    ]
    entries = list_vouched_entries(tx, logged)
    scheduled = [
        (entry.person, event)
        for entry in entries
        if isinstance(event := entry.event, events.Scheduled)
    ]
    if not scheduled:
        return f"that schedule {schedule.id} was approved"
    owner, event = scheduled[-1]
    logged_schedule = owner, event.lapses_at, encode_canonical(event.timing)
    stored_schedule = (
        schedule.owner,
        schedule.lapses_at,
        encode_canonical(tx.redactor.redact_value(schedule.timing.document)),
    )
    if logged_schedule != stored_schedule:
        return f"that schedule {schedule.id} is the one that was approved"
    if logged[-1].kind not in _ACTIVE_SCHEDULE_KINDS or logged[-1] not in entries:
        return f"that schedule {schedule.id} is active"
    fired = list_vouched_entries(
        tx,
        change_log.list_entries_naming(
            tx, events.Fired.kind, "fired_run", run.id, run=schedule.run
        ),
    )
    if not any(
        isinstance(event := entry.event, events.Fired) and event.schedule == schedule.id
        for entry in fired
    ):
        return f"that schedule {schedule.id} fired run {run.id}"
    return ""


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
        rows.lock_schedule(tx, run.timing.replaces_schedule)
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
    schedule = rows.add_schedule(
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
        rows.set_schedule_state(tx, old, ScheduleState.ENDED, why)
        change_log.append_entry(tx, events.ScheduleEnded(schedule=old.id, reason=why), run=old.run)
    started = runs.move_run(
        tx, runs.move_run(tx, run, State.STARTING), State.RUNNING, started_at=tx.now
    )
    return end_run(context, tx, started, State.SUCCEEDED, f"Schedule {schedule.id} is active")


def _list_managers(context: WorkflowContext, tx: Transaction, schedule: Schedule) -> list[str]:
    """Return whose schedule it is; empty if it has ended or its owner left the policy."""
    policy = context.policies.get_policy()
    if schedule.state is ScheduleState.ENDED or policy.find_person(schedule.owner) is None:
        return []
    return sorted(list_managers(policy, schedule, runs.get_run(tx, schedule.run)))


def list_managers(policy: Policy, schedule: Schedule, founding_run: Run) -> set[str]:
    """Return who may suspend and end a schedule: its owner, and those of its area."""
    area = policy.organisation.areas.get(founding_run.area)
    return {schedule.owner, *(area.owners if area else ())}
