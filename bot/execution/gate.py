"""The gate: the last look before the first packet, in one transaction with the intent.

Every door ends here. Nothing that a door has checked is believed: who may ask, whose approvals
count, how long they last, what was approved and who holds the host are looked up again now.
"""

import logging
from dataclasses import dataclass

from bot.audit import change_log, evidence
from bot.db import leases, locks, priority, runs, schedules, stops
from bot.db.database import Transaction
from bot.db.lease_keeper import HeldLease
from bot.execution.intent import StepIntent, record_step_intent
from bot.execution.planner import RemainingWork, resolve_plan
from bot.execution.recovery import can_resume
from bot.model.plan import ResolvedPlan
from bot.model.run import Run, State
from bot.model.run_states import ON_HOLD_DISPLAY
from bot.policy import NoPolicyError, Policy
from bot.workflow import break_glass_rules, grant_rules, schedule_approval, stop_reasons
from bot.workflow.approval_count import ApprovalCount, count_approvals
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_run_change, end_run, release_host_lock
from bot.workflow.outdated_plans import describe_stale_plan
from runbooks._catalogue import get_kind

log = logging.getLogger(__name__)


class GateRefused(Exception):
    """The gate stays shut. state: how the run ends for it."""

    def __init__(self, state: State, reason: str) -> None:
        super().__init__(reason)
        self.state = state


class ApprovalsMissing(GateRefused):
    """By now the rules want more approvals than when it was approved; what was given counts."""

    def __init__(self, approval_count: ApprovalCount, reason: str) -> None:
        super().__init__(State.REFUSED, reason)
        self.approval_count = approval_count


@dataclass(frozen=True)
class ClaimedRun:
    """A run that has its host, in our hands."""

    run: Run
    held_lease: HeldLease
    # How many of its steps were done by whoever had it before.
    steps_done: int = 0


def claim_run(context: WorkflowContext, number: int) -> ClaimedRun | None:
    """Take the host for this run, or return None: it is not its turn, or it has ended."""
    with context.database.together() as tx:
        run = runs.lock_run(tx, number)
        if run.state is not State.QUEUED:
            return None
        try:
            policy = _get_policy(context)
            authorise_run(context, tx, run, policy)
        except GateRefused as shut:
            end_refused_run(context, tx, run, shut)
            return None
        frozen = _get_blocking_freeze(tx, run, policy)
        if frozen:
            record_waiting_reason(tx, run, f"{ON_HOLD_DISPLAY.label}: {frozen}")
            return None
        first = priority.urgent_run_at(tx, run.host)
        if first not in {None, run.id} and priority.get_turn(tx, run.id).rank < priority.URGENT:
            record_waiting_reason(tx, run, f"waits for run {first}, for which glass was broken")
            return None
        holder = locks.take_lock(tx, run.host, run.id)
        if holder is not None:
            record_waiting_reason(tx, run, f"waits for run {holder.run}, which holds {run.host}")
            return None
        claimed = runs.move_run(tx, run, State.STARTING, summary="")
        hold = context.lease_keeper.take_lease(tx, run)
        change_log.append_entry(
            tx,
            "claimed",
            run=run.id,
            host=run.host,
            worker=context.lease_keeper.name,
            fence=hold.fence,
        )
        return ClaimedRun(claimed, hold)


def resume_run(context: WorkflowContext, number: int) -> ClaimedRun | None:
    """Take a run that was taken from a worker between two steps; None if this is none."""
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        lease = leases.get_lease(tx, number)
        # Its first step is sent by whoever has passed the gate with it, and by nobody else; and
        # what was left too long ago is ended by whoever looks for what was left.
        if lease is None or lease.worker or not can_resume(tx, run):
            return None
        records = runs.list_steps(tx, number)
        hold = context.lease_keeper.take_lease(tx, run)
        change_log.append_entry(
            tx,
            "resumed",
            run=run.id,
            host=run.host,
            worker=context.lease_keeper.name,
            fence=hold.fence,
        )
        return ClaimedRun(run, hold, steps_done=len(records))


def pass_gate(
    context: WorkflowContext, claimed_run: ClaimedRun, remaining: RemainingWork
) -> StepIntent | None:
    """Let the run through and write its first intent; None if it ended here instead."""
    with context.database.together() as tx:
        run = runs.lock_run(tx, claimed_run.run.id)
        if run.state is not State.STARTING or not context.lease_keeper.has_lease(
            tx, claimed_run.held_lease
        ):
            return None
        try:
            policy = _get_policy(context)
            authorise_run(context, tx, run, policy)
            _check_plan_unchanged(context, run, policy, remaining)
        except GateRefused as shut:
            end_refused_run(context, tx, run, shut)
            return None
        frozen = _get_blocking_freeze(tx, run, policy)
        if frozen:
            release_host_lock(context, tx, run)
            record_waiting_reason(
                tx, runs.move_run(tx, run, State.QUEUED), f"{ON_HOLD_DISPLAY.label}: {frozen}"
            )
            return None
        if run.grant_id is not None:
            grant_rules.use_grant(tx, run)
        running = runs.move_run(tx, run, State.RUNNING, started_at=tx.now)
        change_log.append_entry(
            tx, "started", run=run.id, host=run.host, digest=run.digest, parent_run=run.parent
        )
        intent = record_step_intent(tx, running, claimed_run.held_lease, 1)
        announce_run_change(tx, run)
        return intent


def _get_blocking_freeze(tx: Transaction, run: Run, policy: Policy) -> str:
    """Say in words why the run waits now; only broken glass goes through a freeze."""
    frozen = policy.describe_freeze(host=run.host, runbook=run.runbook, now=tx.now)
    return "" if frozen and break_glass_rules.is_break_glass_active(tx, policy, run) else frozen


def record_waiting_reason(tx: Transaction, run: Run, reason: str) -> None:
    """Say once what an approved run waits for."""
    if run.summary != reason:
        runs.amend_run(tx, run, summary=reason)
        change_log.append_entry(tx, "on hold", run=run.id, host=run.host, reason=reason)
        announce_run_change(tx, run)


def authorise_next_step(
    context: WorkflowContext, run_before: Run, held_lease: HeldLease, step_number: int
) -> StepIntent | None:
    """Write the intent of a further step; None if the run may not go on."""
    with context.database.together() as tx:
        run = runs.lock_run(tx, run_before.id)
        if run.state is not State.RUNNING or not context.lease_keeper.has_lease(tx, held_lease):
            return None
        try:
            policy = _get_policy(context)
            authorise_run(context, tx, run, policy)
            _check_host_key_unchanged(run_before, policy, step_number)
        except GateRefused as shut:
            if shut.state is State.STOPPED:
                end_run(context, tx, run, State.STOPPED, str(shut))
            else:
                end_run(
                    context, tx, run, State.FAILED, f"Stopped before step {step_number}: {shut}"
                )
            return None
        intent = record_step_intent(tx, run_before, held_lease, step_number)
        announce_run_change(tx, run)
        return intent


def authorise_run(context: WorkflowContext, tx: Transaction, run: Run, policy: Policy) -> None:
    """Raise Shut unless asker, approvers and time allow this run at this moment.

    What was approved for several hosts was approved as a whole: its keys open each of them.
    """
    _check_is_in_time(tx, run)
    stop = stop_reasons.describe_stop(tx, run, policy)
    if stop:
        raise GateRefused(State.STOPPED, stop_reasons.describe_stopped_run(tx, run, stop))
    admitted = _exclude_banned(tx, run, policy)
    whole = run
    if run.parent is not None:
        whole = runs.get_run(tx, run.parent)
        _check_is_child_of(run, whole)
        # Until it is about to be sent, it only takes the host.
        doubt = "" if run.state is State.QUEUED else evidence.find_doubt_of_child(tx, run, whole)
        if doubt:
            raise _build_evidence_refusal(run, doubt)
    counted = _count_approvals(context, tx, whole, admitted)
    if not counted.is_met and not break_glass_rules.is_break_glass_active(tx, admitted, whole):
        _check_grant(tx, admitted, whole, counted)


def _exclude_banned(tx: Transaction, run: Run, policy: Policy) -> Policy:
    """Return the policy without those who are shut out; raise Shut if everybody is."""
    shut_out = evidence.list_banned(tx)
    if evidence.EVERYBODY in shut_out:
        raise _build_evidence_refusal(run, "that everything may go on")
    return policy.without_people(stops.list_banned_people(tx) | shut_out)


def _count_approvals(
    context: WorkflowContext, tx: Transaction, run: Run, policy: Policy
) -> ApprovalCount:
    """Count the approvals of a request; raise Shut if it may not be done, or is not borne out."""
    keyed = _get_approved_run(context, tx, run)
    _check_evidence(context, tx, run, keyed)
    counted = count_approvals(tx, policy, run, keyed)
    if not counted.ruling.allowed:
        why = "; ".join(counted.ruling.policy_notes) or "no rule allows it any more"
        raise GateRefused(
            State.REFUSED,
            f"{_get_policy(context).get_person_name(run.requested_by)} may no longer have this "
            f"done: {why}",
        )
    if counted.denied_by:
        raise GateRefused(
            State.DENIED, f"Denied by {_get_policy(context).get_person_name(counted.denied_by)}"
        )
    return counted


def _check_is_in_time(tx: Transaction, run: Run) -> None:
    """Raise Shut if an approval was not used in time: what has begun goes on."""
    begun = run.state is State.RUNNING
    # The plan says so too, and it is the plan that was approved.
    ends = [run.expires_at, run.plan.expires_at if run.plan else None]
    if any(end is not None and tx.now >= end for end in ends) and not begun:
        raise GateRefused(
            State.EXPIRED, "Nobody started it in time. Ask again if it is still needed."
        )


def _check_evidence(
    context: WorkflowContext, tx: Transaction, run: Run, approved_run: Run
) -> None:
    """Raise Shut if tables say what the signed log does not: somebody wrote behind our back."""
    known = context.runbooks.get(run.runbook)
    # What is asked of the rules depends on it, and no entry of the log says it.
    changed = known is not None and get_kind(known) != run.kind
    doubt = (
        f"that {run.runbook} is a {run.kind}" if changed else evidence.find_doubt_of_run(tx, run)
    )
    doubt = doubt or (
        "" if approved_run is run else _find_doubt_of_schedule(tx, run, approved_run)
    )
    if doubt:
        raise _build_evidence_refusal(run, doubt)


def _build_evidence_refusal(run: Run, doubt: str) -> GateRefused:
    log.critical("run %d: the change log does not bear out %s", run.id, doubt)
    return GateRefused(
        State.REFUSED,
        f"The change log does not bear out {doubt}: somebody may have altered the database. "
        "Nothing more is sent for it. `keyturn changelog verify` tells whether that is so; if all "
        "is well, ask again.",
    )


def _find_doubt_of_schedule(tx: Transaction, run: Run, approved_run: Run) -> str:
    schedule = schedules.get_schedule(tx, run.origin.schedule_id)
    return evidence.find_doubt_of_run(tx, approved_run) or evidence.find_doubt_of_fire(
        tx, schedule, run
    )


def _check_grant(tx: Transaction, policy: Policy, run: Run, approval_count: ApprovalCount) -> None:
    """Raise Shut unless a standing grant stands in for the approvals."""
    if run.grant_id is None:
        raise _build_approvals_refusal(policy, approval_count)
    lost = grant_rules.get_grant_refusal(
        tx, policy, run, approval_count.request, approval_count.ruling
    )
    if lost:
        raise ApprovalsMissing(approval_count, lost)


def _build_approvals_refusal(policy: Policy, approval_count: ApprovalCount) -> GateRefused:
    """Say what is missing: a lost approval ends it, one that is wanted anew is asked for."""
    terms = approval_count.ruling.requirements
    why = (
        f"It takes {terms.required_approvals} approval(s) by "
        f"{policy.describe_approver_groups(terms)}, and "
        f"{len(approval_count.approvers)} of those given still count(s)."
    )
    if approval_count.lost_approvers:
        return GateRefused(State.REFUSED, f"{why} Ask again.")
    return ApprovalsMissing(approval_count, why)


def end_refused_run(
    context: WorkflowContext, tx: Transaction, run: Run, refusal: GateRefused
) -> Run:
    """End the run, or have it approved further where all that it lacks is an approval more."""
    if (
        not isinstance(refusal, ApprovalsMissing)
        or run.parent is not None
        or run.origin.schedule_id
    ):
        return end_run(context, tx, run, refusal.state, str(refusal))
    ruling = refusal.approval_count.ruling
    waiting = runs.move_run(
        tx,
        run,
        State.PENDING,
        requirements=ruling.requirements,
        required_approvals=ruling.required_approvals,
        approver_groups=ruling.approver_groups,
        policy_notes=ruling.policy_notes,
        grant_id=None,
        pending_since=tx.now,
        reminded_at=None,
        summary="",
        expires_at=min(
            tx.now + context.approval_timeout, run.plan.expires_at if run.plan else tx.now
        ),
    )
    # Also of a run that held nothing: whoever is next in line waits to be woken.
    release_host_lock(context, tx, run)
    change_log.append_entry(
        tx, "more approvals needed", run=run.id, host=run.host, reason=str(refusal)
    )
    announce_run_change(tx, run)
    return waiting


def _get_approved_run(context: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Return the run whose approvals count: for what a schedule asks, that of the schedule."""
    if not run.origin.schedule_id:
        return run
    try:
        return schedule_approval.get_founding_run(context, tx, run)
    except schedule_approval.ScheduleNotApproved as shut:
        raise GateRefused(State.REFUSED, str(shut)) from None


def _check_is_child_of(run: Run, parent: Run) -> None:
    """Raise Shut unless the steps of this host are among those of the plan that was approved."""
    if parent.state not in {State.STARTING, State.RUNNING}:
        raise GateRefused(State.WITHDRAWN, f"The whole request is {parent.state.phrase}")
    mine = [step.runs_command for step in run.plan.steps] if run.plan else []
    steps = parent.plan.steps_by_host.get(run.host, ()) if parent.plan else ()
    approved = [step.runs_command for step in steps]
    if not mine or mine != approved or not parent.plan:
        raise GateRefused(State.STALE, f"What {run.host} was to do is not what was approved")
    if parent.plan.digest != parent.digest:
        raise GateRefused(State.STALE, "The plan does not have the digest that was approved")


def _check_plan_unchanged(
    context: WorkflowContext, run: Run, policy: Policy, remaining: RemainingWork
) -> None:
    if not remaining.steps:
        raise GateRefused(State.NO_CHANGES, f"Nothing left to do: {remaining.current_state}")
    if run.plan is None:
        raise GateRefused(State.REFUSED, "It has no plan")
    if run.plan.digest != run.digest:
        raise GateRefused(
            State.STALE, "The plan does not have the digest that was approved. Ask again."
        )
    fresh = resolve_plan(context, run, policy, remaining, expires_at=run.plan.expires_at)
    if fresh.digest == run.digest:
        return
    rekeyed = _list_hosts_with_changed_key(run.plan, policy)
    if rekeyed:
        what = f"the host key of {' and '.join(rekeyed)} in the inventory changed"
    elif fresh.policy_version != run.plan.policy_version:
        what = "the policy was changed"
    elif fresh.runbook_version != run.plan.runbook_version:
        what = "the runbook was changed"
    else:
        what = f"{run.host} is not as it was: {remaining.current_state}"
    raise GateRefused(State.STALE, describe_stale_plan(what))


def _list_hosts_with_changed_key(plan: ResolvedPlan, policy: Policy) -> list[str]:
    """Return the hosts whose key in the inventory is not the one of the approved plan.

    Steps are not compared one by one: a plan with fewer of them left says nothing about keys.
    """
    known = policy.inventory.hosts
    keys = {step.host: step.fingerprint for step in plan.steps}
    return [host for host, key in keys.items() if host in known and known[host].fingerprint != key]


def _check_host_key_unchanged(run: Run, policy: Policy, step_number: int) -> None:
    """Raise Shut if the inventory points at another machine since the run began."""
    step = run.plan.steps[step_number - 1] if run.plan else None
    known = policy.inventory.hosts.get(step.host) if step else None
    if step is None or known is None or known.fingerprint != step.fingerprint:
        raise GateRefused(State.STALE, f"{run.host} has another key in the inventory now")


def _get_policy(context: WorkflowContext) -> Policy:
    try:
        return context.policies.get_policy()
    except NoPolicyError as trouble:
        raise GateRefused(State.REFUSED, f"There is no valid policy: {trouble}") from None
