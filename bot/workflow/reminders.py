"""Remind approvers of pending runs, and escalate to the next group."""

from bot.audit import change_log, events
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.policy import NoPolicyError, Policy
from bot.queries.approval_count import count_approvals
from bot.queries.questions import get_discussion
from bot.workflow.context import WorkflowContext


def remind_approvers(context: WorkflowContext) -> list[Run]:
    """Remind the approvers of runs that have waited too long; escalate after twice the time."""
    try:
        policy = context.policies.get_policy()
    except NoPolicyError:
        # No one could approve anything; the missing policy is reported elsewhere.
        return []
    with context.database.reading() as tx:
        due = [
            run.id for run in runs.list_pending(tx) if _needs_reminder(context, tx, policy, run)
        ]
    reminded: list[Run] = []
    # One transaction each: holding the log lock while waiting for a run can deadlock.
    for number in due:
        with context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.PENDING and _needs_reminder(context, tx, policy, run):
                reminded.append(_record_reminder(tx, policy, run))
    return reminded


def _needs_reminder(context: WorkflowContext, tx: Transaction, policy: Policy, run: Run) -> bool:
    # Approvers can do nothing about a run that its requester has not signed.
    return (
        _is_overdue(context, tx, run) and not count_approvals(tx, policy, run).lacks_signed_request
    )


def _is_overdue(context: WorkflowContext, tx: Transaction, run: Run) -> bool:
    if run.pending_since is None or run.parent is not None:
        return False
    waited, limit = (
        tx.now - run.pending_since,
        run.requirements.remind_after or context.reminder_delay,
    )
    if waited < limit:
        return False
    assignment = get_discussion(tx, run.id).assignment
    if assignment is not None:
        # First the assignee, then everyone.
        return tx.now - assignment.at >= (2 * limit if assignment.is_reminded else limit)
    if run.reminded_at is None:
        return True
    return bool(run.requirements.escalate_to) and run.escalated_at is None and waited >= 2 * limit


def _record_reminder(tx: Transaction, policy: Policy, run: Run) -> Run:
    assignment = get_discussion(tx, run.id).assignment
    escalates = run.reminded_at is not None and assignment is None
    if not escalates:
        updated = runs.amend_run(tx, run, reminded_at=tx.now)
    else:
        requirements = run.requirements.escalate_requirements()
        updated = runs.amend_run(
            tx,
            run,
            escalated_at=tx.now,
            requirements=requirements,
            approver_groups=requirements.approver_groups,
        )
    counted = count_approvals(tx, policy, updated)
    able = policy.list_approvers(counted.request, counted.ruling)
    people = [person.id for person in able if person.id not in counted.approvers]
    if assignment is not None and not assignment.is_reminded:
        people = [assignment.assignee]
    event_type = events.Escalated if escalates else events.Reminded
    reminded = event_type(
        people=tuple(people),
        approvers=policy.describe_approver_groups(counted.ruling.requirements),
    )
    change_log.append_entry(tx, reminded, run=run)
    outbox.announce_run(tx, run.id)
    return updated
