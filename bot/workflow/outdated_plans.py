"""End runs that were planned under an earlier policy, before people approve them."""

from bot.audit import change_log
from bot.db import runs
from bot.model.run import Run, State
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from bot.workflow.policy_changes import CHANGED


def is_plan_outdated(policy: Policy, run: Run) -> bool:
    """Return whether the gate would refuse the plan because the policy has changed.

    The approval of a schedule stays valid when the policy changes.
    """
    plan = run.plan
    return plan is not None and run.timing is None and plan.policy_version != policy.version


def describe_stale_plan(change: str) -> str:
    """Return the summary of a run whose plan is not current any more."""
    return (
        f"After the plan was made, {change}. Nothing was sent. Request it again to get a new plan."
    )


def end_outdated_plans(context: WorkflowContext) -> list[Run]:
    """End pending and queued runs that were planned under an earlier policy.

    Policy versions have no order, and another process may still use the older one. So this does
    nothing unless the policy of this process is the newest in the log.
    """
    try:
        policy = context.policies.get_policy()
    except NoPolicyError:
        # No one could approve anything; the missing policy is reported elsewhere.
        return []
    with context.database.reading() as tx:
        logged = change_log.get_last_entry_of_kind(tx, CHANGED)
        if logged is None or logged.facts["new"] != policy.version:
            return []
        earlier = runs.list_planned_under_other_policies(tx, policy.version, before=logged.at)
    ended: list[Run] = []
    # One transaction each: holding the log lock while waiting for a run can deadlock.
    for number in earlier:
        with context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state in {State.PENDING, State.QUEUED} and is_plan_outdated(policy, run):
                ended.append(
                    end_run(
                        context,
                        tx,
                        run,
                        State.STALE,
                        describe_stale_plan("the policy was changed"),
                    )
                )
    return ended
