"""The gate: authorise a run before anything is sent, in one transaction with the intent.

Requests from all sources pass it. The gate trusts no earlier check: it reads again who may
request the run, whose approvals are valid and for how long, what was approved, and the host lock.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.audit import change_log, events, evidence
from bot.db import break_glass, leases, locks, priority, runs, stops
from bot.db.database import Transaction
from bot.db.lease_keeper import HeldLease
from bot.execution.intent import StepIntent, record_step_intent
from bot.execution.planner import resolve_plan
from bot.execution.recovery import can_resume
from bot.model.plan import PlannedStep, RemainingWork, ResolvedPlan
from bot.model.run import RefusedBy, Run, State
from bot.model.sequence import find_label
from bot.model.text import format_sentence
from bot.model.waiting import Waiting, WaitingFor
from bot.policy import NoPolicyError, Policy
from bot.queries import break_glass_rules, own_runbooks, stop_reasons
from bot.queries.approval_count import ApprovalCount, count_approvals
from bot.queries.policy_facts import apply_facts
from bot.queries.policy_result import is_plan_outdated
from bot.workflow import standing_grants
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_run_change, end_run, release_host_lock
from bot.workflow.holding import move_back_to_pending
from bot.workflow.hooks import RefusedByFeature, check_work, claim_for_run
from bot.workflow.outdated_plans import describe_stale_plan
from runbooks._catalogue import get_kind

log = logging.getLogger(__name__)

_NO_SCHEDULES = (
    "Nothing in this installation keeps schedules: add the feature schedules, or request a run"
)


class GateRefused(Exception):
    """The gate refuses a run.

    Args:
        state: How the run ends.
        refused_by: What refuses it, if it ends as refused.
    """

    def __init__(self, state: State, reason: str, refused_by: RefusedBy | None = None) -> None:
        super().__init__(reason)
        self.state, self.refused_by = state, refused_by


class ApprovalsMissing(GateRefused):
    """The rules require more approvals by now; those already given still count."""

    def __init__(self, approval_count: ApprovalCount, reason: str) -> None:
        super().__init__(State.REFUSED, reason, RefusedBy.APPROVALS)
        self.approval_count = approval_count


@dataclass(frozen=True)
class ClaimedRun:
    """A run that this process has claimed, with its host lock and lease."""

    run: Run
    held_lease: HeldLease
    steps_done: int = 0
    """How many steps an earlier worker has executed."""


def claim_run(context: WorkflowContext, number: int) -> ClaimedRun | None:
    """Lock the host for this run; return None if it is not its turn, or it has ended."""
    with context.database.shared_transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.state is not State.QUEUED:
            return None
        try:
            policy = _get_policy(context)
            counted = authorise_run(context, tx, run, policy)
        except GateRefused as refusal:
            end_refused_run(context, tx, run, refusal)
            return None
        held = _find_hold(context, tx, run, counted)
        if held is not None:
            record_waiting(tx, run, held)
            return None
        first = priority.get_urgent_run(tx, run.host)
        if (
            first is not None
            and first != run.id
            and priority.get_turn(tx, run.id).rank < priority.URGENT
        ):
            record_waiting(tx, run, Waiting(WaitingFor.BREAK_GLASS, run=first))
            return None
        holder = locks.take_lock(tx, run.host, run.id)
        if holder is not None:
            record_waiting(tx, run, Waiting(WaitingFor.LOCK, run.host, run=holder.run))
            return None
        claimed = runs.move_run(tx, run, State.STARTING)
        hold = context.lease_keeper.take_lease(tx, run)
        change_log.append_entry(
            tx, events.Claimed(worker=context.lease_keeper.name, fence=hold.fence), run=run
        )
        return ClaimedRun(claimed, hold)


def resume_run(context: WorkflowContext, number: int) -> ClaimedRun | None:
    """Claim a run that lost its worker between two steps; return None for any other run."""
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        lease = leases.get_lease(tx, number)
        # Only the worker that passed the gate sends the first step. A run that was abandoned too
        # long ago is ended by recovery.
        if lease is None or lease.worker or not can_resume(tx, run):
            return None
        records = runs.list_steps(tx, number)
        hold = context.lease_keeper.take_lease(tx, run)
        change_log.append_entry(
            tx, events.Resumed(worker=context.lease_keeper.name, fence=hold.fence), run=run
        )
        return ClaimedRun(run, hold, steps_done=len(records))


def pass_gate(
    context: WorkflowContext, claimed_run: ClaimedRun, remaining: RemainingWork
) -> StepIntent | None:
    """Authorise the run and record the intent of its first step; None if it ended instead."""
    with context.database.shared_transaction() as tx:
        run = runs.lock_run(tx, claimed_run.run.id)
        if run.state is not State.STARTING or not context.lease_keeper.has_lease(
            tx, claimed_run.held_lease
        ):
            return None
        try:
            policy = _get_policy(context)
            counted = authorise_run(context, tx, run, policy)
            check_work(context, tx, policy, run, remaining)
            _check_plan_unchanged(context, tx, run, policy, remaining)
        except RefusedByFeature as refused:
            end_refused_run(context, tx, run, _build_feature_refusal(refused))
            return None
        except GateRefused as refusal:
            end_refused_run(context, tx, run, refusal)
            return None
        held = _find_hold(context, tx, run, counted)
        if held is not None:
            release_host_lock(context, tx, run)
            record_waiting(tx, runs.move_run(tx, run, State.QUEUED), held)
            return None
        # Last, since other runs that touch the same services wait for it from here.
        try:
            claim_for_run(context, tx, policy, run)
        except RefusedByFeature as refused:
            end_refused_run(context, tx, run, _build_feature_refusal(refused))
            return None
        if run.grant_id is not None:
            standing_grants.use_grant(tx, run)
        if run.parent is None:
            record_review_requirement(tx, run, counted)
        running = runs.move_run(tx, run, State.RUNNING, started_at=tx.now)
        change_log.append_entry(
            tx,
            events.Started(
                digest=run.digest,
                parent_run=run.parent,
                part=run.title if run.parent is not None else "",
            ),
            run=run,
        )
        intent = record_step_intent(tx, running, claimed_run.held_lease, 1)
        announce_run_change(tx, run)
        return replace(intent, required_witnesses=counted.ruling.requirements.required_witnesses)


def _find_hold(
    context: WorkflowContext, tx: Transaction, run: Run, counted: ApprovalCount
) -> Waiting | None:
    """Return what an approved run waits for: a time or witnesses; None to go on."""
    policy = counted.policy
    held_until = find_blocking_time(tx, run, counted)
    if held_until is not None:
        return held_until
    required = counted.ruling.requirements.required_witnesses
    if not required:
        return None
    away = context.witnesses.list_away(required) if context.witnesses else ()
    if away is None or break_glass_rules.is_break_glass_active(tx, policy, run):
        return None
    return Waiting(WaitingFor.WITNESSES, ", ".join(away))


def find_blocking_time(tx: Transaction, run: Run, counted: ApprovalCount) -> Waiting | None:
    """Return the approved start or the freeze that holds the run.

    None if neither does, or break-glass is active. counted: as authorise_run() returns it.
    """
    policy, start_at = counted.policy, counted.start_at
    if start_at is not None and tx.now < start_at:
        held = Waiting(WaitingFor.START_TIME, time=start_at)
    else:
        held = policy.find_freeze(run.target_hosts, runbook=run.runbook, now=tx.now)
    is_bypassed = held and break_glass_rules.is_break_glass_active(tx, policy, run)
    return None if is_bypassed else held


def record_waiting(tx: Transaction, run: Run, waiting: Waiting) -> None:
    """Record and log what an approved run waits for, once for each reason."""
    waiting = waiting.redact(tx.redactor.redact_text)
    if run.waiting != waiting:
        runs.amend_run(tx, run, waiting=waiting)
        on_hold = events.OnHold(
            waiting_for=waiting.reason,
            name=waiting.name,
            place=waiting.place,
            time=waiting.time,
        )
        change_log.append_entry(tx, on_hold, run=run)
        announce_run_change(tx, run)


def authorise_next_step(
    context: WorkflowContext, run_before: Run, held_lease: HeldLease, step_number: int
) -> StepIntent | None:
    """Authorise a later step and record its intent; return None if the run ended instead."""
    with context.database.shared_transaction() as tx:
        run = runs.lock_run(tx, run_before.id)
        if run.state is not State.RUNNING or not context.lease_keeper.has_lease(tx, held_lease):
            return None
        try:
            policy = _get_policy(context)
            authorise_run(context, tx, run, policy)
            _check_host_key_unchanged(run_before, policy, step_number)
        except GateRefused as refusal:
            if refusal.state is State.STOPPED:
                end_run(context, tx, run, State.STOPPED, str(refusal))
            else:
                end_run(
                    context, tx, run, State.FAILED, f"Stopped before step {step_number}: {refusal}"
                )
            return None
        intent = record_step_intent(tx, run_before, held_lease, step_number)
        announce_run_change(tx, run)
        return intent


def may_send_again(context: WorkflowContext, run_before: Run, held_lease: HeldLease) -> bool:
    """Return whether a step of which nothing was sent may still be sent."""
    with context.database.shared_transaction() as tx:
        run = runs.lock_run(tx, run_before.id)
        if run.state is not State.RUNNING or not context.lease_keeper.has_lease(tx, held_lease):
            return False
        try:
            authorise_run(context, tx, run, _get_policy(context))
        except GateRefused:
            return False
        return True


def record_review_requirement(tx: Transaction, run: Run, counted: ApprovalCount) -> None:
    """Record that another person has to review a run that starts, if its rules require that.

    Not if another person approved it, or break-glass requires a review already.
    """
    if not counted.ruling.requires_review or counted.approvers:
        return
    used = break_glass.get_break_glass(tx, run.id)
    if used is not None and used.activated_at is not None:
        return
    break_glass.record_start_to_review(tx, run=run.id, person=run.requested_by, reason=run.reason)
    change_log.append_entry(
        tx,
        events.ReviewRequired(
            digest=run.digest,
            rules=tuple(counted.ruling.rules),
            on_duty={name: tuple(duty.people) for name, duty in counted.policy.duties.items()},
        ),
        run=run,
        person=run.requested_by,
    )


def authorise_run(
    context: WorkflowContext, tx: Transaction, run: Run, policy: Policy
) -> ApprovalCount:
    """Raise GateRefused unless requester, approvals and time allow this run now.

    The approvals of a parent run count for each of its child runs.
    """
    _check_is_in_time(tx, run)
    stop = stop_reasons.describe_stop(tx, run, policy)
    if stop:
        raise GateRefused(State.STOPPED, stop_reasons.describe_stopped_run(tx, run, stop))
    _check_runbook_is_enabled(context, tx, run)
    unbanned_policy = _exclude_banned(tx, run, policy)
    parent = run
    if run.parent is not None:
        parent = runs.get_run(tx, run.parent)
        _check_is_child_of(run, parent)
        # A queued run only locks its host; the evidence is checked before its first step.
        doubt = (
            "" if run.state is State.QUEUED else evidence.find_mismatch_of_child(tx, run, parent)
        )
        if doubt:
            raise build_evidence_refusal(run, doubt)
    unbanned_policy = apply_facts(context.hooks.policy_facts, tx, unbanned_policy, parent)
    counted = _count_approvals(context, tx, parent, unbanned_policy)
    lacks_ticket = counted.ruling.requires_ticket and not parent.ticket
    if counted.is_met and not lacks_ticket:
        return counted
    if not break_glass_rules.is_break_glass_active(tx, unbanned_policy, parent):
        if lacks_ticket:
            raise GateRefused(
                State.REFUSED,
                "The policy requires an approved change ticket by now",
                RefusedBy.TICKET,
            )
        _check_grant(tx, unbanned_policy, parent, counted)
    return counted


def _build_feature_refusal(refused: RefusedByFeature) -> GateRefused:
    return GateRefused(State.REFUSED, str(refused), refused.refused_by)


def _check_runbook_is_enabled(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Raise GateRefused for an own runbook whose files two people have not enabled."""
    known = context.runbooks.get(run.runbook)
    if known is None:
        refusal = own_runbooks.describe_pending(run.runbook)
    else:
        refusal = own_runbooks.find_refusal(tx, known)
    if refusal:
        raise GateRefused(State.REFUSED, refusal, RefusedBy.RUNBOOK)


def _exclude_banned(tx: Transaction, run: Run, policy: Policy) -> Policy:
    """Return the policy without banned people; raise GateRefused if everything is stopped."""
    banned = evidence.list_banned(tx)
    if evidence.EVERYONE in banned:
        raise build_evidence_refusal(run, "that everything was resumed")
    return policy.without_people(stops.list_banned_people(tx) | banned)


def _count_approvals(
    context: WorkflowContext, tx: Transaction, run: Run, policy: Policy
) -> ApprovalCount:
    """Count the approvals; raise GateRefused if policy, evidence or a denial forbid the run."""
    approved = _get_approved_run(context, tx, run)
    _check_evidence(context, tx, run, approved)
    counted = count_approvals(tx, policy, run, approved)
    if not counted.ruling.allowed:
        unknown_duty = policy.describe_unknown_duty(counted.request, counted.ruling)
        notes = filter(None, [*counted.ruling.policy_notes, unknown_duty])
        why = "; ".join(notes) or "no rule allows it any more"
        raise GateRefused(
            State.REFUSED,
            f"{_get_policy(context).get_person_name(run.requested_by)} may not request this any "
            f"more: {why}",
            RefusedBy.POLICY,
        )
    if counted.denied_by:
        raise GateRefused(
            State.DENIED, f"{_get_policy(context).get_person_name(counted.denied_by)} denied it"
        )
    return counted


def _check_is_in_time(tx: Transaction, run: Run) -> None:
    """Raise GateRefused if the run has expired. A running run does not expire."""
    begun = run.state is State.RUNNING
    # The expiry in the plan is the one that was approved.
    ends = [run.expires_at, run.plan.expires_at if run.plan else None]
    if any(end is not None and tx.now >= end for end in ends) and not begun:
        raise GateRefused(
            State.EXPIRED, "No one started it in time. Request it again if it is still needed."
        )


def _check_evidence(
    context: WorkflowContext, tx: Transaction, run: Run, approved_run: Run
) -> None:
    """Raise GateRefused if the database does not match the signed log."""
    known = context.runbooks.get(run.runbook)
    # The rules depend on the kind, which no log entry contains.
    changed = known is not None and (get_kind(known) != run.kind or run.is_sequence)
    doubt = (
        f"that {run.runbook} is a {run.kind}"
        if changed
        else evidence.find_mismatch_of_run(tx, run)
    )
    doubt = doubt or (
        "" if approved_run is run else evidence.find_mismatch_of_run(tx, approved_run)
    )
    if doubt:
        raise build_evidence_refusal(run, doubt)


def build_evidence_refusal(run: Run, doubt: str) -> GateRefused:
    log.critical("run %d: the change log does not confirm %s", run.id, doubt)
    return GateRefused(
        State.REFUSED,
        f"The change log does not confirm {doubt}: the database may have been altered. Nothing "
        "more is sent for this run. Run `keyturn changelog verify`; if it reports no problem, "
        "request the run again.",
        RefusedBy.EVIDENCE,
    )


def _check_grant(tx: Transaction, policy: Policy, run: Run, approval_count: ApprovalCount) -> None:
    """Raise GateRefused unless a standing grant replaces the approvals."""
    if run.grant_id is None:
        raise _build_approvals_refusal(policy, approval_count)
    lost = standing_grants.get_grant_refusal(
        tx, policy, run, approval_count.request, approval_count.ruling
    )
    if lost:
        raise ApprovalsMissing(approval_count, lost)


def _build_approvals_refusal(policy: Policy, approval_count: ApprovalCount) -> GateRefused:
    """Return the refusal: a run ends by a lost approval, and waits for a newly required one."""
    requirements = approval_count.ruling.requirements
    why = (
        f"{len(approval_count.approvers)} of {requirements.required_approvals} required approvals "
        f"by {policy.describe_approver_groups(requirements)} are valid."
    )
    if approval_count.lacks_signed_request:
        name = policy.get_person_name(approval_count.request.requested_by)
        why += f" {name}, who requested it, has not signed it with a key that counts."
    if approval_count.ruling.requires_signature:
        why += " Only signatures with a key that people.yaml names for the approver count."
    ruling = approval_count.ruling
    if unknown_duty := policy.describe_unknown_duty(approval_count.request, ruling):
        why += f" {format_sentence(unknown_duty)}"
    if approval_count.lost_approvers:
        return GateRefused(State.REFUSED, f"{why} Request it again.", RefusedBy.APPROVALS)
    return ApprovalsMissing(approval_count, why)


def end_refused_run(
    context: WorkflowContext, tx: Transaction, run: Run, refusal: GateRefused
) -> Run:
    """End the run, or make it pending again if it only lacks approvals."""
    if (
        not isinstance(refusal, ApprovalsMissing)
        or run.parent is not None
        or run.origin.schedule_id
    ):
        return end_run(
            context, tx, run, refusal.state, str(refusal), refused_by=refusal.refused_by
        )
    change_log.append_entry(tx, events.MoreApprovalsNeeded(reason=str(refusal)), run=run)
    return move_back_to_pending(context, tx, run, refusal.approval_count.ruling)


def _get_approved_run(context: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Return the run whose approvals count: for a run of a schedule, that of the schedule."""
    if not run.origin.schedule_id:
        return run
    if context.hooks.schedules is None:
        raise GateRefused(State.REFUSED, _NO_SCHEDULES, RefusedBy.SCHEDULE)
    return context.hooks.schedules.get_founding_run(context, tx, run)


def start_schedule(context: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Let an approved request for a schedule be started; its run ends by that."""
    if context.hooks.schedules is None:
        why = _NO_SCHEDULES
        return end_run(context, tx, run, State.REFUSED, why, refused_by=RefusedBy.SCHEDULE)
    return context.hooks.schedules.start_schedule(context, tx, run)


def _check_is_child_of(run: Run, parent: Run) -> None:
    """Raise GateRefused unless the approved plan of the parent contains the steps of this run."""
    if parent.state not in {State.STARTING, State.RUNNING}:
        raise GateRefused(State.WITHDRAWN, f"The parent run {parent.state.phrase}")
    mine = [*run.plan.steps] if run.plan else []
    approved = [*_list_approved_steps(run, parent, parent.plan)] if parent.plan else []
    if not mine or mine != approved or not parent.plan:
        raise GateRefused(State.STALE, f"What {run.host} was to do is not what was approved")
    if run.plan is not None and run.plan.ticket != parent.plan.ticket:
        raise GateRefused(State.STALE, "The ticket is not as it was approved")
    if not parent.plan.has_digest(parent.digest):
        raise GateRefused(State.STALE, "The plan does not have the digest that was approved")


def _list_approved_steps(run: Run, parent: Run, plan: ResolvedPlan) -> Sequence[PlannedStep]:
    """Return the steps in the approved plan that a child run may execute."""
    if not parent.is_sequence:
        return plan.steps_by_host.get(run.host, ())
    label = find_label(parent.values, host=run.host, runbook=run.runbook, title=run.title)
    steps = plan.list_steps_of_part(label)
    return steps if all(step.host == run.host for step in steps) else ()


def _check_plan_unchanged(
    context: WorkflowContext, tx: Transaction, run: Run, policy: Policy, remaining: RemainingWork
) -> None:
    if not remaining.steps:
        raise GateRefused(State.NO_CHANGES, f"Nothing left to do: {remaining.current_state}")
    if run.plan is None:
        raise GateRefused(State.REFUSED, "It has no plan", RefusedBy.ERROR)
    if not run.plan.has_digest(run.digest):
        raise GateRefused(
            State.STALE, "The plan does not have the digest that was approved. Re-plan it."
        )
    fresh = resolve_plan(context, run, policy, remaining, expires_at=run.plan.expires_at)
    fresh = fresh.adopt_issue(run.plan)
    is_outdated = is_plan_outdated(tx, policy, run)
    if fresh.has_digest(run.digest) and not is_outdated:
        return
    what = _describe_difference(run, run.plan, fresh, policy, is_outdated=is_outdated)
    raise GateRefused(State.STALE, describe_stale_plan(what))


def _describe_difference(
    run: Run, plan: ResolvedPlan, fresh: ResolvedPlan, policy: Policy, *, is_outdated: bool
) -> str:
    """Return what changed after the plan was approved. is_outdated: the policy did."""
    reapproved = _list_hosts_with_changed_key(plan, policy)
    if reapproved:
        return f"the host key of {' and '.join(reapproved)} in the inventory changed"
    if is_outdated:
        return "the policy was changed"
    if fresh.runbook_version != plan.runbook_version:
        return "the runbook was changed"
    if fresh.ticket != plan.ticket:
        return f"ticket {run.ticket} was changed"
    return f"{run.host} is not as it was: {fresh.current_state}"


def _list_hosts_with_changed_key(plan: ResolvedPlan, policy: Policy) -> list[str]:
    """Return the hosts whose key in the inventory differs from the approved plan."""
    known = policy.inventory.hosts
    keys = {step.host: step.fingerprint for step in plan.steps}
    return [host for host, key in keys.items() if host in known and known[host].fingerprint != key]


def _check_host_key_unchanged(run: Run, policy: Policy, step_number: int) -> None:
    """Raise GateRefused if the host key in the inventory has changed since the run started."""
    step = run.plan.steps[step_number - 1] if run.plan else None
    known = policy.inventory.hosts.get(step.host) if step else None
    if step is None or known is None or known.fingerprint != step.fingerprint:
        raise GateRefused(State.STALE, f"the host key of {run.host} in the inventory has changed")


def _get_policy(context: WorkflowContext) -> Policy:
    try:
        return context.policies.get_policy()
    except NoPolicyError as error:
        raise GateRefused(
            State.REFUSED, f"There is no valid policy: {error}", RefusedBy.ERROR
        ) from None
