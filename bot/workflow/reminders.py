"""Reminding: whose approval is waited for hears of it once more, and then the next group too."""

from bot.audit import change_log
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.policy import NoPolicy, Policy
from bot.workflow.approval_count import count_approvals
from bot.workflow.context import WorkflowContext


def remind_pending(parts: WorkflowContext) -> list[Run]:
    """Remind of every request that has waited for so long, and escalate it after twice as long."""
    try:
        policy = parts.policies.current()
    except NoPolicy:
        # Then nobody could approve, which is told elsewhere.
        return []
    with parts.database.reading() as tx:
        due = [run.id for run in runs.list_pending(tx) if _due(parts, tx, run)]
    told: list[Run] = []
    # One transaction each: who holds the log while waiting for a run can block who holds the run.
    for number in due:
        with parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.WAITING and _due(parts, tx, run):
                told.append(_tell(tx, policy, run))
    return told


def _due(parts: WorkflowContext, tx: Transaction, run: Run) -> bool:
    if run.shown is None or run.parent is not None:
        return False
    waited, patience = tx.now - run.shown, run.terms.patience or parts.reminder
    if run.reminded is None:
        return waited >= patience
    return bool(run.terms.escalate) and run.escalated is None and waited >= 2 * patience


def _tell(tx: Transaction, policy: Policy, run: Run) -> Run:
    if run.reminded is None:
        known = runs.amend_run(tx, run, reminded=tx.now)
    else:
        terms = run.terms.escalated()
        known = runs.amend_run(tx, run, escalated=tx.now, terms=terms, groups=terms.groups)
    counted = count_approvals(tx, policy, known)
    able = policy.approvers(counted.request, counted.ruling)
    people = [person.id for person in able if person.id not in counted.keys]
    change_log.append_entry(
        tx,
        "reminded" if run.reminded is None else "escalated",
        run=run.id,
        host=run.host,
        people=people,
        whose=policy.whose(counted.ruling.terms),
    )
    outbox.announce_run(tx, run.id)
    return known
