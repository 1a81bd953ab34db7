"""Outdated: what was planned under another policy than holds now ends before its approval."""

from bot.audit import change_log
from bot.db import runs
from bot.model.run import Run, State
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from bot.workflow.policy_changes import CHANGED


def is_plan_outdated(policy: Policy, run: Run) -> bool:
    """Say whether the gate would turn its plan away for the policy. That of a schedule it does
    not: what was approved for one outlasts policies."""
    known = run.plan
    return known is not None and run.timing is None and known.policy_version != policy.version


def describe_stale_plan(change: str) -> str:
    """Say how a plan ends that is not, by now, what it was when it was shown."""
    return f"After this was shown, {change}. Nothing was sent: ask again to see it anew."


def end_outdated_plans(context: WorkflowContext) -> list[Run]:
    """End what waits with the plan of an earlier policy, so that its asker hears of it at once.

    Versions have no order, and of several processes one may still have the older policy: so only
    where the log has noted ours last does it say what is earlier.
    """
    try:
        policy = context.policies.get_policy()
    except NoPolicyError:
        # Then nobody could approve, which is told elsewhere.
        return []
    with context.database.reading() as tx:
        noted = change_log.get_last_entry_of_kind(tx, CHANGED)
        if noted is None or noted.facts["new"] != policy.version:
            return []
        earlier = runs.list_planned_under_other_policies(tx, policy.version, before=noted.at)
    ended: list[Run] = []
    # One transaction each: who holds the log while waiting for a run can block who holds the run.
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
