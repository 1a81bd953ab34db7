"""Ask about the change ticket of a run: when it is planned, and again before its first step."""

from dataclasses import replace

from bot.db.database import Transaction
from bot.features.tickets.systems import TicketError, ask_ticket
from bot.model.plan import RemainingWork
from bot.model.run import RefusedBy, Run
from bot.policy import Policy
from bot.queries.break_glass_rules import is_break_glass_active
from bot.workflow.context import WorkflowContext
from bot.workflow.hooks import Guard, RefusedByFeature


def add_ticket(
    context: WorkflowContext, policy: Policy, run: Run, work: RemainingWork
) -> RemainingWork:
    """Return the work with what the ticket system says now. Raises RefusedByFeature.

    Break-glass does not wait for the ticket system: the plan keeps the answer that it has.
    """
    if not run.ticket or not work.steps:
        return work
    if run.plan is not None and _is_under_break_glass(context, policy, run):
        return replace(work, ticket=run.plan.ticket)
    if policy.tickets is None:
        raise RefusedByFeature(
            RefusedBy.TICKET, f"Cannot ask about ticket {run.ticket}: tickets.yaml was removed"
        )
    try:
        answer = ask_ticket(policy.tickets, run.ticket, run.host)
    except TicketError as error:
        raise RefusedByFeature(RefusedBy.TICKET, str(error)) from None
    return replace(work, ticket=answer, notes=(*work.notes, f"{answer.describe()}."))


def _is_under_break_glass(context: WorkflowContext, policy: Policy, run: Run) -> bool:
    with context.database.reading() as tx:
        return is_break_glass_active(tx, policy, run)


def find_refusal(
    _context: WorkflowContext, tx: Transaction, policy: Policy, run: Run, work: RemainingWork
) -> str:
    """Return why the ticket does not permit the change now; "" if it does, or break-glass does."""
    refusal = work.ticket.find_refusal(run.host, now=tx.now) if work.ticket else ""
    return "" if refusal and is_break_glass_active(tx, policy, run) else refusal


GUARD = Guard(RefusedBy.TICKET, prepare=add_ticket, check=find_refusal)
