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


def submit_plan(parts: WorkflowContext, tx: Transaction, run: Run, proposal: ResolvedPlan) -> Run:
    """Record the plan with its digest; the run then waits, is ready, or is refused."""
    known = runs.amend_run(
        tx,
        run,
        proposal=proposal,
        digest=proposal.digest,
        expires=proposal.expires,
        # What it may have waited for until now.
        summary="",
    )
    policy = parts.policies.current()
    request, ruling = get_ruling(tx, policy, replace(run, proposal=proposal))
    given, spent = grant_rules.choose_grant(tx, policy, run, request, ruling)
    change_log.append_entry(
        tx,
        "planned",
        run=run.id,
        host=run.host,
        digest=proposal.digest,
        plan=proposal.facts,
        approvals=ruling.approvals,
        groups=ruling.groups,
        whose=policy.whose(ruling.terms),
    )
    if not ruling.allowed:
        why = "; ".join(ruling.says) or "no rule of the policy allows it"
        return end_run(parts, tx, known, State.REFUSED, f"The policy refuses: {why}")
    if ruling.reason and not run.reason:
        return end_run(parts, tx, known, State.REFUSED, f"{NEEDS_REASON}: ask again with one")
    outbox.announce_run(tx, run.id)
    if run.counters is not None:
        return _offer(parts, tx, known, runs.get_run(tx, run.counters), ruling)
    # What a schedule asks for was approved with the schedule: the gate counts those keys.
    waits = ruling.approvals and not run.origin.schedule and given is None
    return runs.move_run(
        tx,
        known,
        State.WAITING if waits else State.READY,
        expires=min(proposal.expires, tx.now + (parts.patience if waits else parts.unused)),
        shown=tx.now if waits else None,
        terms=ruling.terms,
        needed=ruling.approvals,
        groups=ruling.groups,
        says=(*ruling.says, *filter(None, [spent])),
        grant=given.id if given else None,
    )


def _offer(
    parts: WorkflowContext, tx: Transaction, run: Run, original: Run, ruling: Ruling
) -> Run:
    """Offer the requester the plan with an approver's values; the original stays pending.

    The original is not locked: accepting locks both, and then looks at it again.
    """
    if original.state is not State.WAITING:
        why = f"Run {original.id} is {original.state} already"
        return end_run(parts, tx, run, State.WITHDRAWN, why)
    outbox.announce_run(tx, original.id)
    last = min(each.expires or tx.now for each in (run, original))
    return runs.move_run(
        tx,
        run,
        State.OFFERED,
        expires=min(last, tx.now + parts.patience),
        terms=ruling.terms,
        needed=ruling.approvals,
        groups=ruling.groups,
        says=ruling.says,
    )
