"""Delegation rules: on whose behalf a person decides, and whose approvals count.

A delegate gives the delegator's approval, not one of their own: together they count as one. A
delegate can only do what the delegator could do in person, so delegations do not chain.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from bot.audit import grant_evidence
from bot.db import delegations
from bot.db.database import Transaction
from bot.db.delegations import Delegation
from bot.model.run import Decision
from bot.policy import Person, Policy, PolicyRequest, Ruling


def list_logged_delegations(tx: Transaction, *, now: int) -> Sequence[Delegation]:
    """Return the delegations that are active at that time and that the signed log confirms."""
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
    """Return on whose behalf this person may decide; "" if on no one's.

    counted_approvers: people whose approval counts already; others are preferred.
    """
    delegators = list_delegators(
        policy, list_logged_delegations(tx, now=request.now), request, ruling, person
    )
    return min(delegators, key=lambda delegator: delegator in counted_approvers, default="")


def get_counted_approver(
    policy: Policy,
    active_delegations: Sequence[Delegation],
    decision: Decision,
    request: PolicyRequest,
    ruling: Ruling,
) -> str:
    """Return whose approval a decision counts as; "" if it does not count now."""
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
    """Return on whose behalf this person may approve the request, oldest delegation first."""
    delegations_to_person = [one for one in active_delegations if one.delegate == person]
    if (
        not delegations_to_person
        or policy.find_person(person) is None
        or request.is_made_by(person)
    ):
        return []
    if request.host not in policy.inventory.hosts or policy.is_forbidden(
        person, "approve", request
    ):
        return []
    area = policy.get_area(request.host)
    delegated = replace(request, is_delegated=True)
    able = [
        one.delegator
        for one in delegations_to_person
        if one.holds(area=area.name, now=request.now)
        and one.delegator in area.owners
        and policy.get_approval_ruling(one.delegator, delegated, ruling).allowed
    ]
    return list(dict.fromkeys(able))


def list_approvers_and_delegates(
    tx: Transaction, policy: Policy, request: PolicyRequest, ruling: Ruling
) -> list[Person]:
    """Return who may approve the request, in person or on behalf of another, sorted by name."""
    delegates = list_active_delegates(tx, policy, request, ruling)
    people = [
        *policy.list_approvers(request, ruling),
        *filter(None, (policy.find_person(delegate) for delegate, _ in delegates)),
    ]
    return sorted(people, key=lambda person: person.name)


def list_active_delegates(
    tx: Transaction, policy: Policy, request: PolicyRequest, ruling: Ruling
) -> list[tuple[str, str]]:
    """Return who may approve only on behalf of another: pairs of delegate and delegator."""
    return find_delegates(policy, list_logged_delegations(tx, now=request.now), request, ruling)


def find_delegates(
    policy: Policy,
    active_delegations: Sequence[Delegation],
    request: PolicyRequest,
    ruling: Ruling,
) -> list[tuple[str, str]]:
    """Return the same as list_active_delegates(), from given delegations. Pure."""
    found: list[tuple[str, str]] = []
    for person in dict.fromkeys(one.delegate for one in active_delegations):
        able = list_delegators(policy, active_delegations, request, ruling, person)
        if able and not policy.get_approval_ruling(person, request, ruling).allowed:
            found.append((person, able[0]))
    return found
