"""In whose stead somebody decides: whose keys approvals are, once delegations are looked at.

A delegate turns the delegator's key and not one of their own: together they never count as two.
Only what the delegator could do themselves can be done in their stead, so there are no chains.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from bot.audit import grant_evidence
from bot.db import delegations
from bot.db.database import Transaction
from bot.db.delegations import Delegation
from bot.model.run import Decision
from bot.policy import Policy, PolicyRequest, Ruling


def list_logged_delegations(tx: Transaction, *, now: int) -> Sequence[Delegation]:
    """Return the delegations that hold at that moment and that the signed log bears out."""
    return grant_evidence.list_logged_delegations(
        tx, delegations.list_active_delegations(tx, now=now)
    )


def find_delegator(
    tx: Transaction,
    policy: Policy,
    request: PolicyRequest,
    ruling: Ruling,
    person: str,
    *,
    counted_approvers: Collection[str] = (),
) -> str:
    """Return in whose stead this person may decide; "" if in nobody's.

    turned: whose keys are turned already: another's is worth more.
    """
    found = list_delegators(
        policy, list_logged_delegations(tx, now=request.now), request, ruling, person
    )
    return min(found, key=lambda delegator: delegator in counted_approvers, default="")


def get_counted_approver(
    policy: Policy,
    active_delegations: Sequence[Delegation],
    decision: Decision,
    request: PolicyRequest,
    ruling: Ruling,
) -> str:
    """Return whose key an approval is; "" if it does not count at this moment."""
    if decision.on_behalf_of:
        able = list_delegators(policy, active_delegations, request, ruling, decision.person)
        return decision.on_behalf_of if decision.on_behalf_of in able else ""
    return (
        decision.person
        if policy.get_approval_ruling(decision.person, request, ruling).allowed
        else ""
    )


def list_delegators(
    policy: Policy,
    active_delegations: Sequence[Delegation],
    request: PolicyRequest,
    ruling: Ruling,
    person: str,
) -> list[str]:
    """Return everybody in whose stead this person may approve the request, the oldest first."""
    mine = [one for one in active_delegations if one.delegate == person]
    if not mine or policy.find_person(person) is None or request.is_made_by(person):
        return []
    if request.host not in policy.inventory.hosts or policy.is_forbidden(
        person, "approve", request
    ):
        return []
    area = policy.get_area(request.host)
    stead = replace(request, is_delegated=True)
    able = [
        one.delegator
        for one in mine
        if one.holds(area=area.name, now=request.now)
        and one.delegator in area.owners
        and policy.get_approval_ruling(one.delegator, stead, ruling).allowed
    ]
    return list(dict.fromkeys(able))


def list_active_delegates(
    tx: Transaction, policy: Policy, request: PolicyRequest, ruling: Ruling
) -> list[tuple[str, str]]:
    """Return everybody who may approve only in another's stead, and in whose."""
    return find_delegates(policy, list_logged_delegations(tx, now=request.now), request, ruling)


def find_delegates(
    policy: Policy,
    active_delegations: Sequence[Delegation],
    request: PolicyRequest,
    ruling: Ruling,
) -> list[tuple[str, str]]:
    """Say the same of delegations that were looked up. Pure."""
    found: list[tuple[str, str]] = []
    for person in dict.fromkeys(one.delegate for one in active_delegations):
        able = list_delegators(policy, active_delegations, request, ruling, person)
        if able and not policy.get_approval_ruling(person, request, ruling).allowed:
            found.append((person, able[0]))
    return found
