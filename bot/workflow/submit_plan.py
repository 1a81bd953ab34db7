"""Submit a plan: to its requester, to its approvers, or to the queue if it needs no approval."""

from dataclasses import replace

from bot.audit import change_log, events
from bot.db import break_glass, outbox, runs
from bot.db.database import Transaction
from bot.db.grants import Grant
from bot.model.plan import ResolvedPlan
from bot.model.run import RefusedBy, Run, State
from bot.model.text import capitalise_sentence
from bot.policy import Policy, Ruling
from bot.queries.approval_count import get_ruling
from bot.workflow import standing_grants
from bot.workflow.context import WorkflowContext, compute_start_deadline
from bot.workflow.finish import end_run
from bot.workflow.outdated_plans import describe_replan
from bot.workflow.requests import NEEDS_TICKET, describe_policy_refusal

NEEDS_REASON = "The policy requires a reason"
# Sources that request a change before its plan exists; the others show the plan first.
_SOURCES_WITHOUT_PLAN = frozenset({"slack"})


def submit_plan(context: WorkflowContext, tx: Transaction, run: Run, plan: ResolvedPlan) -> Run:
    """Record the plan with its digest; the run is then planned, pending, queued or refused."""
    policy = context.policies.get_policy()
    request, ruling = get_ruling(tx, policy, replace(run, plan=plan))
    if run.replan_of is not None:
        note = describe_replan(runs.get_run(tx, run.replan_of), plan, ruling)
        plan = replace(plan, notes=(*plan.notes, note))
    updated = record_plan(tx, policy, run, plan, ruling)
    grant, exhausted = standing_grants.choose_grant(tx, policy, run, request, ruling)
    if not ruling.allowed:
        why = describe_policy_refusal(policy, request, ruling)
        return end_run(context, tx, updated, State.REFUSED, why, refused_by=RefusedBy.POLICY)
    if run.plan_only:
        return _show_plan(context, tx, updated, ruling, grant)
    if missing := _find_missing(tx, run, ruling):
        return end_run(context, tx, updated, State.REFUSED, _MISSING[missing], refused_by=missing)
    outbox.announce_run(tx, run.id)
    if _must_be_confirmed(tx, updated, needs_approval=bool(ruling.required_approvals)):
        return _show_plan(context, tx, runs.mark_as_plan(tx, updated), ruling, grant)
    if run.proposal_for is not None:
        return _offer_counter_proposal(
            context, tx, updated, runs.get_run(tx, run.proposal_for), ruling
        )
    return move_to_approval(
        context, tx, updated, replace(ruling, policy_notes=_add_note(ruling, exhausted)), grant
    )


def record_plan(
    tx: Transaction, policy: Policy, run: Run, plan: ResolvedPlan, ruling: Ruling
) -> Run:
    """Store a plan with its digest, and log it."""
    updated = runs.amend_run(
        tx,
        run,
        plan=plan,
        digest=plan.digest,
        expires_at=plan.expires_at,
        # It waits for no worker any more.
        waiting=None,
    )
    planned = events.Planned(
        digest=plan.digest,
        plan=plan.log_facts,
        required_approvals=ruling.required_approvals,
        approver_groups=tuple(ruling.approver_groups),
        approvers=policy.describe_approver_groups(ruling.requirements),
    )
    change_log.append_entry(tx, planned, run=run)
    return updated


_MISSING = {
    RefusedBy.REASON: f"{NEEDS_REASON}: request it again with a reason",
    RefusedBy.TICKET: f"{capitalise_sentence(NEEDS_TICKET)}: request it again with a ticket",
}


def _find_missing(tx: Transaction, run: Run, ruling: Ruling) -> RefusedBy | None:
    """Return what the rules require and the request lacks; None for nothing."""
    if ruling.requires_reason and not run.reason:
        return RefusedBy.REASON
    is_emergency = break_glass.get_break_glass(tx, run.id) is not None
    if ruling.requires_ticket and not run.ticket and not is_emergency:
        return RefusedBy.TICKET
    return None


def _must_be_confirmed(tx: Transaction, run: Run, *, needs_approval: bool) -> bool:
    """Return whether the requester first has to confirm that a step cannot be undone."""
    # An emergency does not wait twice: break-glass, which replaces the approval, confirms it.
    is_confirmed_later = needs_approval and break_glass.get_break_glass(tx, run.id) is not None
    return (
        run.plan is not None
        and not run.plan.is_reversible
        and run.origin.source in _SOURCES_WITHOUT_PLAN
        and run.proposal_for is None
        and not is_confirmed_later
    )


def move_to_approval(
    context: WorkflowContext, tx: Transaction, run: Run, ruling: Ruling, grant: Grant | None
) -> Run:
    """Make a planned run pending, or queued if it needs no approval.

    grant: the standing grant that replaces the approval.
    """
    # Runs of a schedule were approved with the schedule: the gate counts those approvals.
    is_pending = bool(ruling.required_approvals) and not run.origin.schedule_id and grant is None
    deadline = compute_start_deadline(context, context.policies.get_policy(), run, now=tx.now)
    return runs.move_run(
        tx,
        run,
        State.PENDING if is_pending else State.QUEUED,
        expires_at=min(deadline, tx.now + context.approval_timeout) if is_pending else deadline,
        pending_since=tx.now if is_pending else None,
        requirements=ruling.requirements,
        required_approvals=ruling.required_approvals,
        approver_groups=ruling.approver_groups,
        policy_notes=ruling.policy_notes,
        grant_id=grant.id if grant else None,
    )


def _add_note(ruling: Ruling, note: str) -> tuple[str, ...]:
    return (*ruling.policy_notes, *filter(None, [note]))


def _show_plan(
    context: WorkflowContext, tx: Transaction, run: Run, ruling: Ruling, grant: Grant | None
) -> Run:
    """Show the plan to its requester, and keep it for a few minutes. It holds no lock."""
    note = f"Grant {grant.id} approves this in advance." if grant else ""
    return runs.move_run(
        tx,
        run,
        State.PLANNED,
        expires_at=tx.now + context.plan_lifetime,
        requirements=ruling.requirements,
        required_approvals=0 if grant else ruling.required_approvals,
        approver_groups=ruling.approver_groups,
        policy_notes=_add_note(ruling, note),
    )


def _offer_counter_proposal(
    context: WorkflowContext, tx: Transaction, run: Run, original: Run, ruling: Ruling
) -> Run:
    """Offer the requester the plan with an approver's values; the original stays pending.

    The original is not locked: accepting locks both, and then checks it again.
    """
    if original.state is not State.PENDING:
        why = f"Run {original.id} {original.state.phrase} already"
        return end_run(context, tx, run, State.WITHDRAWN, why)
    outbox.announce_run(tx, original.id)
    last = min(each.expires_at or tx.now for each in (run, original))
    return runs.move_run(
        tx,
        run,
        State.COUNTER_PROPOSED,
        expires_at=min(last, tx.now + context.approval_timeout),
        requirements=ruling.requirements,
        required_approvals=ruling.required_approvals,
        approver_groups=ruling.approver_groups,
        policy_notes=ruling.policy_notes,
    )
