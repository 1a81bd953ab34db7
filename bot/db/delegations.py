"""Delegations: who decides in whose stead, and until when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, bindparam, insert, or_, select, update

from bot.db import tables
from bot.db.database import Transaction

_ROW = tables.delegation.c
_IN_FORCE = (
    select(tables.delegation)
    .where(_ROW.revoked_at.is_(None), _ROW.ends_at > bindparam("at"))
    .order_by(_ROW.id)
)


class NoSuchDelegation(Exception):
    """There is no delegation with this number."""


@dataclass(frozen=True)
class Delegation:
    """made, ends, revoked: microseconds. area: "" means every area that the delegator owns."""

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
        """The area, in words if it is all of them."""
        return self.area or "every area of the delegator's"

    def holds(self, *, area: str, now: int) -> bool:
        """Say whether it counts there now: at the moment when it ends, it does not any more."""
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
    return _delegation(row)


def lock_delegation(tx: Transaction, number: int) -> Delegation:
    """Return it and keep others from changing it until this transaction ends."""
    query = select(tables.delegation).where(_ROW.id == number).with_for_update()
    row = tx.sql.execute(query).one_or_none()
    if row is None:
        raise NoSuchDelegation(f"there is no delegation {number}")
    return _delegation(row)


def revoke_delegation(tx: Transaction, number: int) -> None:
    tx.sql.execute(update(tables.delegation).where(_ROW.id == number).values(revoked_at=tx.now))


def list_active_delegations(tx: Transaction, *, now: int | None = None) -> Sequence[Delegation]:
    """Return all that hold, the oldest first. now: another moment than this, in microseconds."""
    at = tx.now if now is None else now
    return [_delegation(row) for row in tx.sql.execute(_IN_FORCE, {"at": at}).all()]


def list_delegations_of(tx: Transaction, person: str, *, most: int = 50) -> Sequence[Delegation]:
    """Return those by and to one person, the newest first, ended ones too."""
    query = select(tables.delegation).where(or_(_ROW.delegator == person, _ROW.delegate == person))
    return [_delegation(row) for row in tx.sql.execute(query.order_by(_ROW.id.desc()).limit(most))]


def _delegation(row: Row[Any]) -> Delegation:
    return Delegation(
        row.id,
        row.delegator,
        row.delegate,
        row.area,
        row.created_at,
        row.ends_at,
        row.revoked_at,
        row.reason,
    )
