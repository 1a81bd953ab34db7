"""Check the right to view a run before a person acts on it."""

from bot.db import runs
from bot.workflow.context import WorkflowContext


def require_view(context: WorkflowContext, number: int, *, person: str) -> None:
    """Raise NoSuchRun if the run does not exist, or the person may not view it.

    A person who is not in the policy passes: the action itself refuses them.
    """
    policy = context.policies.get_policy()
    if policy.find_person(person) is None:
        return
    with context.database.reading(policy.get_view_rights(person)) as tx:
        runs.get_run(tx, number)
