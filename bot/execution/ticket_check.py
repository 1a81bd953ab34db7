"""Ask about the change ticket of a run: when it is planned, and again before its first step."""

from dataclasses import replace

from bot.execution.planner import RemainingWork
from bot.integrations.ticket_client import ask_ticket
from bot.integrations.ticket_connection import TicketError
from bot.model.run import Run
from bot.policy import Policy
from bot.queries.break_glass_rules import is_break_glass_active
from bot.workflow.context import WorkflowContext


def add_ticket(
    context: WorkflowContext, policy: Policy, run: Run, remaining: RemainingWork
) -> RemainingWork:
    """Return the work with what the ticket system says now. Raises TicketError.

    Break-glass does not wait for the ticket system: the plan keeps the answer that it has.
    """
    if not run.ticket or not remaining.steps:
        return remaining
    if run.plan is not None and _is_under_break_glass(context, policy, run):
        return replace(remaining, ticket=run.plan.ticket)
    if policy.tickets is None:
        raise TicketError(f"Cannot ask about ticket {run.ticket}: tickets.yaml was removed")
    answer = ask_ticket(policy.tickets, run.ticket, run.host)
    notes = (*remaining.notes, f"{answer.describe()}.")
    return replace(remaining, ticket=answer, notes=notes)


def _is_under_break_glass(context: WorkflowContext, policy: Policy, run: Run) -> bool:
    with context.database.reading() as tx:
        return is_break_glass_active(tx, policy, run)
