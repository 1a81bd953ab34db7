"""Showing: a plan goes to the people whose approval the rules want, or straight on."""

from dataclasses import replace

from bot.audit import change_log
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model.plan import ResolvedPlan
from bot.model.run import Run, State
from bot.policy import Ruling
from bot.workflow import grant_rules
from bot.workflow.approval_count import get_ruling
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run

NEEDS_REASON = "The rules want to know why this is done"


def submit_plan(context: WorkflowContext, tx: Transaction, run: Run, plan: ResolvedPlan) -> Run:
    """Record the plan with its digest; the run then waits, is ready, or is refused."""
    known = runs.amend_run(
        tx,
        run,
        plan=plan,
        digest=plan.digest,
        expires_at=plan.expires_at,
        # What it may have waited for until now.
        summary="",
    )
    policy = context.policies.get_policy()
    request, ruling = get_ruling(tx, policy, replace(run, plan=plan))
    given, spent = grant_rules.choose_grant(tx, policy, run, request, ruling)
    change_log.append_entry(
        tx,
        "planned",
        run=run.id,
        host=run.host,
        digest=plan.digest,
        plan=plan.log_facts,
        required_approvals=ruling.required_approvals,
        approver_groups=ruling.approver_groups,
        approvers=policy.describe_approver_groups(ruling.requirements),
    )
    if not ruling.allowed:
        why = "; ".join(ruling.policy_notes) or "no rule of the policy permits it"
        return end_run(context, tx, known, State.REFUSED, f"The policy refuses: {why}")
    if ruling.requires_reason and not run.reason:
        return end_run(context, tx, known, State.REFUSED, f"{NEEDS_REASON}: ask again with one")
    outbox.announce_run(tx, run.id)
    if run.proposal_for is not None:
        return _offer_counter_proposal(
            context, tx, known, runs.get_run(tx, run.proposal_for), ruling
        )
    # What a schedule asks for was approved with the schedule: the gate counts those keys.
    waits = ruling.required_approvals and not run.origin.schedule_id and given is None
    return runs.move_run(
        tx,
        known,
        State.PENDING if waits else State.QUEUED,
        expires_at=min(
            plan.expires_at,
            tx.now + (context.approval_timeout if waits else context.start_timeout),
        ),
        pending_since=tx.now if waits else None,
        requirements=ruling.requirements,
        required_approvals=ruling.required_approvals,
        approver_groups=ruling.approver_groups,
        policy_notes=(*ruling.policy_notes, *filter(None, [spent])),
        grant_id=given.id if given else None,
    )


def _offer_counter_proposal(
    context: WorkflowContext, tx: Transaction, run: Run, original: Run, ruling: Ruling
) -> Run:
    """Offer the requester the plan with an approver's values; the original stays pending.

    The original is not locked: accepting locks both, and then looks at it again.
    """
    if original.state is not State.PENDING:
        why = f"Run {original.id} is {original.state.phrase} already"
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
