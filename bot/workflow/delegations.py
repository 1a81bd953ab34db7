"""Create and end delegations: an owner lets another person decide on their behalf for a time."""

from dataclasses import replace

from bot.audit import change_log, events
from bot.audit.event_type import Event
from bot.db import delegations
from bot.db.database import Transaction
from bot.db.delegations import Delegation
from bot.model.errors import InvalidRequestError, NoSuchPersonError, NotAllowed
from bot.model.times import DAY, format_deadline
from bot.policy import Policy
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import shorten_reason

MAX_DAYS = 90


class DelegationActions:
    """What people may do about delegations.

    Methods take the source of the request (slack, web or cli), and raise InvalidRequestError and
    NotAllowed.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def create_delegation(
        self,
        *,
        delegator: str,
        delegate: str,
        ends_at: int,
        area: str = "",
        reason: str = "",
        source: str,
    ) -> Delegation:
        """Let *delegate* decide on behalf of *delegator* until *ends_at* (microseconds).

        area: one that the delegator owns; "" for all of them.
        """
        _check_delegation(self._context.policies.get_policy(), delegator, delegate, area)
        with self._context.database.transaction() as tx:
            if not tx.now < ends_at <= tx.now + MAX_DAYS * DAY:
                raise InvalidRequestError(
                    f"a delegation ends within {MAX_DAYS} days from now: choose another end"
                )
            made = delegations.add_delegation(
                tx,
                delegator=delegator,
                delegate=delegate,
                area=area,
                ends=ends_at,
                reason=shorten_reason(reason),
            )
            _log_delegation(tx, events.DelegationCreated, made, delegator, source)
        return made

    def end_delegation(self, number: int, *, person: str, source: str) -> Delegation:
        """End a delegation now. person: its delegator or delegate; "" on the command line."""
        with self._context.database.transaction() as tx:
            found = delegations.lock_delegation(tx, number)
            if person and person not in {found.delegator, found.delegate}:
                policy = self._context.policies.get_policy()
                owner, other = map(policy.get_person_name, (found.delegator, found.delegate))
                raise NotAllowed(f"only {owner} and {other} can end delegation {number}")
            if found.revoked_at is not None or found.ends_at <= tx.now:
                raise InvalidRequestError(f"delegation {number} has ended already")
            delegations.revoke_delegation(tx, number)
            _log_delegation(tx, events.DelegationRevoked, found, person, source)
            return replace(found, revoked_at=tx.now)


def _check_delegation(policy: Policy, delegator: str, delegate: str, area: str) -> None:
    if policy.find_person(delegator) is None:
        raise NoSuchPersonError(delegator)
    if policy.find_person(delegate) is None:
        raise NoSuchPersonError(delegate, policy.organisation.people)
    if delegate == delegator:
        raise InvalidRequestError("you cannot delegate to yourself: name another person")
    owned = [one.name for one in policy.organisation.areas.values() if delegator in one.owners]
    if not owned:
        raise NotAllowed("you own no area, so you have no decisions to delegate")
    if area and area not in owned:
        raise NotAllowed(
            f"you do not own {policy.join_area_titles([area])}, only "
            f"{policy.join_area_titles(sorted(owned))}"
        )


def _log_delegation(
    tx: Transaction,
    event_type: type[events.DelegationCreated | events.DelegationRevoked],
    delegation: Delegation,
    person: str,
    source: str,
) -> None:
    change_log.append_entry(tx, _build_event(event_type, delegation, source), person=person)


def end_delegations_of(tx: Transaction, person: str, source: str) -> list[Event]:
    """End the delegations by and to a person; return what to log.

    The caller logs it, once it has locked everything else.
    """
    active = delegations.list_active_delegations_of(tx, person)
    for one in sorted(active, key=lambda each: each.id):
        delegations.lock_delegation(tx, one.id)
        delegations.revoke_delegation(tx, one.id)
    return [_build_event(events.DelegationRevoked, one, source) for one in active]


def _build_event(
    event_type: type[events.DelegationCreated | events.DelegationRevoked],
    delegation: Delegation,
    source: str,
) -> Event:
    return event_type(
        delegation=delegation.id,
        delegator=delegation.delegator,
        delegate=delegation.delegate,
        area=delegation.where,
        until=format_deadline(delegation.ends_at),
        source=source,
        reason=delegation.reason,
    )
