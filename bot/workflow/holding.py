"""Hold an approved run before its start: it is pending again, and its approvals count no more."""

from bot.audit import change_log, events
from bot.db import runs
from bot.db.database import Transaction
from bot.model.errors import NotAllowed, TooLate
from bot.model.run import Run, State
from bot.policy import Ruling
from bot.queries.approval_count import get_ruling
from bot.queries.pending import get_hold_refusal
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_run_change, release_host_lock
from bot.workflow.requests import shorten_reason


def hold_run(context: WorkflowContext, number: int, *, person: str, reason: str) -> Run:
    """Let a run need its approvals again, before its first step is sent.

    A signature over the plan stays valid for an enrolled host until the plan expires: Keyturn
    sends nothing on it.

    Raises:
        NotAllowed: This person may not hold it.
        TooLate: It is not approved and waiting.
    """
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        refusal = get_hold_refusal(tx, policy, run, person)
        if refusal:
            raise (NotAllowed if run.state is State.QUEUED else TooLate)(refusal)
        _, ruling = get_ruling(tx, policy, run)
        runs.remove_decisions(tx, run.id)
        held = events.Held(digest=run.digest, reason=shorten_reason(reason))
        change_log.append_entry(tx, held, run=run, person=person)
        return move_back_to_pending(context, tx, run, ruling)


def move_back_to_pending(
    context: WorkflowContext, tx: Transaction, run: Run, ruling: Ruling
) -> Run:
    """Let a run that was approved wait for approvals again."""
    last = run.plan.expires_at if run.plan else tx.now
    pending = runs.move_run(
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
        expires_at=min(tx.now + context.approval_timeout, last),
    )
    # Also for a run without a lock, because the next run for the host has to be woken.
    release_host_lock(context, tx, run)
    announce_run_change(tx, run)
    return pending
