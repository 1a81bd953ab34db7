"""Delegating: an owner lets another person decide in their stead, until a time that is said."""

from dataclasses import replace

from bot.audit import change_log
from bot.db import delegations
from bot.db.database import Transaction
from bot.db.delegations import Delegation
from bot.model.times import format_deadline
from bot.policy import Policy
from bot.workflow.approvals import NotAllowed
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import InvalidRequest, NoSuchPerson, fold_reason

LONGEST_DAYS = 90
_DAY = 86400 * 1_000_000


def create_delegation(
    parts: WorkflowContext,
    *,
    person: str,
    to: str,
    ends: int,
    area: str = "",
    reason: str = "",
    door: str,
) -> Delegation:
    """Let *to* decide in *person*'s stead, in one area or in all that the person owns."""
    policy = parts.policies.current()
    _check(policy, person, to, area)
    with parts.database.transaction() as tx:
        if not tx.now < ends <= tx.now + LONGEST_DAYS * _DAY:
            raise InvalidRequest(
                f"a delegation ends within {LONGEST_DAYS} days: choose another time"
            )
        made = delegations.add_delegation(
            tx, delegator=person, delegate=to, area=area, ends=ends, reason=fold_reason(reason)
        )
        _log(tx, "delegated", made, person, door)
    return made


def end_delegation(parts: WorkflowContext, number: int, *, person: str, door: str) -> Delegation:
    """End a delegation at once. person: its delegator or delegate; "" at the machine itself."""
    with parts.database.transaction() as tx:
        found = delegations.lock_delegation(tx, number)
        if person and person not in {found.delegator, found.delegate}:
            policy = parts.policies.current()
            owner, other = map(policy.name_person, (found.delegator, found.delegate))
            raise NotAllowed(f"only {owner} and {other} can end delegation {number}")
        if found.revoked is not None or found.ends <= tx.now:
            raise InvalidRequest(f"delegation {number} has ended already")
        delegations.revoke_delegation(tx, number)
        _log(tx, "delegation revoked", found, person, door)
        return replace(found, revoked=tx.now)


def _check(policy: Policy, person: str, to: str, area: str) -> None:
    if policy.person(person) is None:
        raise NoSuchPerson(person)
    if policy.person(to) is None:
        raise NoSuchPerson(to, policy.household.people)
    if to == person:
        raise InvalidRequest("you decide for yourself already: name somebody else")
    owned = [one.name for one in policy.household.areas.values() if person in one.owners]
    if not owned:
        raise NotAllowed("you own no area, so there is nothing that anybody could decide for you")
    if area and area not in owned:
        raise NotAllowed(
            f"you own {policy.titles(sorted(owned))}, and not {policy.titles([area])}"
        )


def _log(tx: Transaction, what: str, made: Delegation, person: str, door: str) -> None:
    change_log.append_entry(
        tx,
        what,
        person=person,
        delegation=made.id,
        delegator=made.delegator,
        delegate=made.delegate,
        area=made.where,
        until=format_deadline(made.ends),
        door=door,
        reason=made.reason,
    )
