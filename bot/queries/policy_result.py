"""What the policy says of a plan, and whether a plan is still current."""

from collections.abc import Iterator
from dataclasses import replace

from bot.db.database import Transaction
from bot.model.canonical import hash_canonical
from bot.model.plan import ResolvedPlan
from bot.model.run import Run
from bot.policy import Policy, Ruling
from bot.queries.approval_count import get_policy_request
from connectors.inventory import Host


def compute_policy_result(tx: Transaction, policy: Policy, run: Run) -> str:
    """Return a digest of all that the policy says of a request and of its hosts.

    run: with its plan. Under two policies with the same digest, the same rules apply, the same
    approvals are needed, and the commands go to the same addresses with the same logins.
    """
    return _hash_result(policy, run, _get_ruling(tx, policy, run))


def _get_ruling(tx: Transaction, policy: Policy, run: Run) -> Ruling:
    request = replace(get_policy_request(tx, policy, run), is_escalated=False)
    return policy.get_request_ruling(request)


def _hash_result(policy: Policy, run: Run, ruling: Ruling) -> str:
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
    """Return the plan with the policy's result for it, and the names of the rules."""
    ruling = _get_ruling(tx, policy, replace(run, plan=plan))
    result = _hash_result(policy, run, ruling)
    return replace(plan, policy_result=result, rules=tuple(sorted(ruling.rules)))


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


def is_plan_current(tx: Transaction, policy: Policy, run: Run) -> bool:
    """Return whether a plan has not expired, and the policy says the same of it as before."""
    in_time = run.expires_at is None or tx.now < run.expires_at
    return not run.is_ended and in_time and not is_plan_outdated(tx, policy, run)
