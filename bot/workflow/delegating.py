"""Delegating: an owner lets another person decide in their stead, until a time that is said."""

from dataclasses import replace

from bot.deadline import written
from bot.policy import Policy
from bot.store import changelog, delegations
from bot.store.database import Transaction
from bot.store.delegations import Delegation
from bot.workflow.asking import NoSuchPerson, Unfit, fold_reason
from bot.workflow.deciding import NotYours
from bot.workflow.parts import Parts

LONGEST_DAYS = 90
_DAY = 86400 * 1_000_000


def delegate(
    parts: Parts, *, person: str, to: str, ends: int, area: str = "", reason: str = "", door: str
) -> Delegation:
    """Let *to* decide in *person*'s stead, in one area or in all that the person owns."""
    policy = parts.policies.current()
    _check(policy, person, to, area)
    with parts.database.transaction() as tx:
        if not tx.now < ends <= tx.now + LONGEST_DAYS * _DAY:
            raise Unfit(f"a delegation ends within {LONGEST_DAYS} days: choose another time")
        made = delegations.add(
            tx, delegator=person, delegate=to, area=area, ends=ends, reason=fold_reason(reason)
        )
        _log(tx, "delegated", made, person, door)
    return made


def revoke(parts: Parts, number: int, *, person: str, door: str) -> Delegation:
    """End a delegation at once. person: its delegator or delegate; "" at the machine itself."""
    with parts.database.transaction() as tx:
        found = delegations.hold(tx, number)
        if person and person not in {found.delegator, found.delegate}:
            policy = parts.policies.current()
            owner, other = map(policy.name_person, (found.delegator, found.delegate))
            raise NotYours(f"only {owner} and {other} can end delegation {number}")
        if found.revoked is not None or found.ends <= tx.now:
            raise Unfit(f"delegation {number} has ended already")
        delegations.revoke(tx, number)
        _log(tx, "delegation revoked", found, person, door)
        return replace(found, revoked=tx.now)


def _check(policy: Policy, person: str, to: str, area: str) -> None:
    if policy.person(person) is None:
        raise NoSuchPerson(person)
    if policy.person(to) is None:
        raise NoSuchPerson(to, policy.household.people)
    if to == person:
        raise Unfit("you decide for yourself already: name somebody else")
    owned = [one.name for one in policy.household.areas.values() if person in one.owners]
    if not owned:
        raise NotYours("you own no area, so there is nothing that anybody could decide for you")
    if area and area not in owned:
        raise NotYours(f"you own {policy.titles(sorted(owned))}, and not {policy.titles([area])}")


def _log(tx: Transaction, what: str, made: Delegation, person: str, door: str) -> None:
    changelog.append(
        tx,
        what,
        person=person,
        delegation=made.id,
        delegator=made.delegator,
        delegate=made.delegate,
        area=made.where,
        until=written(made.ends),
        door=door,
        reason=made.reason,
    )
