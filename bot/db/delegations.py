"""Delegations: who decides on behalf of whom, and until when."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, insert, select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError

_ROW = tables.delegation.c
_ACTIVE = (
    select(tables.delegation)
    .where(_ROW.revoked_at.is_(None), _ROW.ends_at > bindparam("at"))
    .order_by(_ROW.id)
)


class NoSuchDelegation(InvalidRequestError):
    """There is no delegation with this number."""


@dataclass(frozen=True)
class Delegation:
    """Times are microseconds. area: "" means every area that the delegator owns."""

    id: int
    delegator: str
    delegate: str
    area: str
    created_at: int
    ends_at: int
    revoked_at: int | None = None
    reason: str = ""

    @property
    def where(self) -> str:
        """The area, or a phrase for all areas of the delegator."""
        return self.area or "every area of the delegator's"

    def holds(self, *, area: str, now: int) -> bool:
        """Return whether the delegation is active in an area. `ends_at` itself is excluded."""
        return self.revoked_at is None and now < self.ends_at and self.area in {"", area}


def add_delegation(
    tx: Transaction, *, delegator: str, delegate: str, area: str, ends: int, reason: str
) -> Delegation:
    row = tx.sql.execute(
        insert(tables.delegation)
        .values(
            delegator=delegator,
            delegate=delegate,
            area=area,
            created_at=tx.now,
            ends_at=ends,
            reason=reason,
        )
        .returning(tables.delegation)
    ).one()
    return Delegation(*row)


def lock_delegation(tx: Transaction, number: int) -> Delegation:
    """Return the delegation and lock its row until this transaction ends."""
    query = select(tables.delegation).where(_ROW.id == number).with_for_update()
    row = tx.sql.execute(query).one_or_none()
    if row is None:
        raise NoSuchDelegation(f"there is no delegation {number}")
    return Delegation(*row)


def revoke_delegation(tx: Transaction, number: int) -> None:
    tx.sql.execute(update(tables.delegation).where(_ROW.id == number).values(revoked_at=tx.now))


def list_active_delegations(tx: Transaction, *, now: int | None = None) -> Sequence[Delegation]:
    """Return the active delegations, the oldest first. now: another time, in microseconds."""
    at = tx.now if now is None else now
    return [Delegation(*row) for row in tx.sql.execute(_ACTIVE, {"at": at}).all()]


def list_active_delegations_of(tx: Transaction, person: str) -> Sequence[Delegation]:
    """Return the active delegations by and to a person, the newest first."""
    active = reversed(list_active_delegations(tx))
    return [one for one in active if person in {one.delegator, one.delegate}]
