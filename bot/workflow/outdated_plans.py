"""End runs that were planned under an earlier policy, before people approve them.

A change of the policy that makes no difference to a request leaves it pending.
"""

from collections.abc import Iterator
from dataclasses import replace

from bot.audit import change_log
from bot.db import runs
from bot.db.database import Transaction
from bot.model.canonical import hash_canonical
from bot.model.plan import ResolvedPlan
from bot.model.run import Run, State
from bot.model.text import format_count
from bot.policy import NoPolicyError, Policy, Ruling
from bot.queries.approval_count import get_policy_request
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from bot.workflow.policy_changes import CHANGED
from connectors.inventory import Host


def compute_policy_result(tx: Transaction, policy: Policy, run: Run) -> str:
    """Return a digest of all that the policy says of a request and of its hosts.

    run: with its plan. Under two policies with the same digest, the same rules apply, the same
    approvals are needed, and the commands go to the same addresses with the same logins.
    """
    request = replace(get_policy_request(tx, policy, run), is_escalated=False)
    ruling = policy.get_request_ruling(request)
    hosts = [
        host.model_dump(mode="json", exclude={"tags"}) | {"tags": sorted(host.tags)}
        for name in run.hosts or (run.host,)
        for host in _list_route(policy, name)
    ]
    return hash_canonical(
        {
            "allowed": ruling.allowed,
            "rules": sorted(ruling.rules),
            "notes": sorted(ruling.policy_notes),
            "requirements": repr(ruling.requirements),
            "max_hosts": ruling.max_hosts,
            "hosts": hosts,
        }
    )


def bind_policy_result(
    tx: Transaction, policy: Policy, run: Run, plan: ResolvedPlan
) -> ResolvedPlan:
    """Return the plan with the policy's result for it."""
    result = compute_policy_result(tx, policy, replace(run, plan=plan))
    return replace(plan, policy_result=result)


def _list_route(policy: Policy, name: str) -> Iterator[Host]:
    """Yield a host and the hosts that its connection goes through."""
    known = policy.inventory.hosts
    passed: set[str] = set()
    while name in known and name not in passed:
        passed.add(name)
        yield known[name]
        name = known[name].jump or ""


def is_plan_outdated(tx: Transaction, policy: Policy, run: Run) -> bool:
    """Return whether the gate would refuse the plan because the policy has changed.

    The approval of a schedule stays valid when the policy changes.
    """
    plan = run.plan
    if plan is None or run.timing is not None or plan.policy_version == policy.version:
        return False
    return plan.policy_result != compute_policy_result(tx, policy, run)


def describe_replan(old: Run, plan: ResolvedPlan, ruling: Ruling) -> str:
    """Return for approvers how the plan differs from that of the run which it replaces."""
    before = [step.runs_command for step in old.plan.steps] if old.plan else []
    other = sum(step.runs_command not in before for step in plan.steps)
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
        logged = change_log.get_last_entry_of_kind(tx, CHANGED)
        if logged is None or logged.facts["new"] != policy.version:
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
