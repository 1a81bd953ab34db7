"""The right to view, before a person acts on a run: what they may not see does not exist."""

from bot.db import runs, schedules
from bot.workflow.context import WorkflowContext


def require_view(context: WorkflowContext, number: int, *, person: str) -> None:
    """Raise NoSuchRun where there is no such run, or the person may not view it.

    Who is not among the people of the policy is refused by what they try, and told so.
    """
    policy = context.policies.get_policy()
    if policy.find_person(person) is None:
        return
    with context.database.reading(policy.get_view_rights(person)) as tx:
        runs.get_run(tx, number)


def require_view_of_schedule(context: WorkflowContext, number: int, *, person: str) -> None:
    """Do the same for a schedule. Raises NoSuchSchedule."""
    policy = context.policies.get_policy()
    if policy.find_person(person) is None:
        return
    with context.database.reading(policy.get_view_rights(person)) as tx:
        schedules.get_schedule(tx, number)
