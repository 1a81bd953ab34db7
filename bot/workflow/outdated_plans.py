"""End runs that were planned under an earlier policy, before people approve them.

A change of the policy that makes no difference to a request leaves it pending.
"""

from bot.audit import change_log, events
from bot.db import runs
from bot.model.plan import ResolvedPlan
from bot.model.run import Run, State
from bot.model.text import format_count
from bot.policy import NoPolicyError, Ruling
from bot.queries.policy_result import is_plan_outdated
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run


def describe_replan(old: Run, plan: ResolvedPlan, ruling: Ruling) -> str:
    """Return for approvers how the plan differs from that of the run which it replaces."""
    before = [step.work for step in old.plan.steps] if old.plan else []
    other = sum(step.work not in before for step in plan.steps)
    counted = f"{other} of {format_count(len(plan.steps), 'step')}"
    is_same = not other and len(before) == len(plan.steps)
    differences = ["the steps are the same" if is_same else f"{counted} differ"]
    if ruling.required_approvals != old.required_approvals:
        needed = f"{ruling.required_approvals} instead of {old.required_approvals}"
        differences.append(f"it needs {needed} approvals")
    elif set(ruling.approver_groups) != set(old.approver_groups):
        differences.append("other people can approve it")
    elif old.plan and old.plan.policy_result != plan.policy_result:
        differences.append("other rules of the policy apply")
    return f"Replaces run {old.id}, which {old.state.phrase}: {', and '.join(differences)}."


def describe_stale_plan(change: str) -> str:
    """Return the summary of a run whose plan is not current any more."""
    return f"After the plan was made, {change}. Nothing was sent. Re-plan it to get a new plan."


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
        logged = change_log.get_last_entry_of_kind(tx, events.PolicyChanged.kind)
        event = logged.event if logged else None
        if (
            logged is None
            or not isinstance(event, events.PolicyChanged)
            or event.new != policy.version
        ):
            return []
        earlier = runs.list_planned_under_other_policies(tx, policy.version, before=logged.at)
        outdated = [
            number for number in earlier if is_plan_outdated(tx, policy, runs.get_run(tx, number))
        ]
    ended: list[Run] = []
    # One transaction each: holding the log lock while waiting for a run can deadlock.
    for number in outdated:
        with context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state in {State.PENDING, State.QUEUED} and is_plan_outdated(tx, policy, run):
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
