"""Second factors of people, stored encrypted."""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from bot.auth.secret_box import SecretBox
from bot.db import tables
from bot.db.database import Transaction
from bot.model.canonical import Canonical


@dataclass(frozen=True)
class SecondFactor:
    """One second factor of a person. Times are microseconds since 1970, UTC."""

    id: int
    person: str
    kind: str
    """totp or passkey."""
    digest: str
    """32 hex digits that identify the factor."""
    created_at: int
    verified_at: int | None
    """When its owner first used it; None if not yet."""
    last_counter: int
    """The last time step or use count. Codes up to it are refused."""
    confirmed_by: str
    """The person who confirmed the factor; "" if none did."""
    sealed: str
    """The encrypted secret or public key."""

    @property
    def sealed_context(self) -> Canonical:
        """The values that the encryption authenticates, so that the database cannot alter them."""
        return {
            "person": self.person,
            "kind": self.kind,
            "digest": self.digest,
            "confirmed_by": self.confirmed_by,
        }


def add_factor(
    tx: Transaction, secret_box: SecretBox, *, person: str, kind: str, digest: str, secret: str
) -> SecondFactor:
    """Store a new factor that is not verified yet."""
    new = SecondFactor(0, person, kind, digest, tx.now, None, 0, "", "")
    values = {name: value for name, value in vars(new).items() if name != "id"}
    values["sealed"] = secret_box.seal_secret(secret, context=new.sealed_context)
    row = tx.sql.execute(
        insert(tables.second_factor).values(values).returning(tables.second_factor)
    ).one()
    return _build_factor(row)


def open_factor_secret(secret_box: SecretBox, factor: SecondFactor) -> str:
    """Return the secret of its codes, or its public key. Raises CannotOpenError."""
    return secret_box.open_secret(factor.sealed, context=factor.sealed_context)


def lock_factors(tx: Transaction, person: str) -> list[SecondFactor]:
    """Return the factors of a person, locked until this transaction ends."""
    query = select(tables.second_factor).where(tables.second_factor.c.person == person)
    rows = tx.sql.execute(query.order_by(tables.second_factor.c.id).with_for_update())
    return [_build_factor(row) for row in rows]


def list_factors(tx: Transaction, person: str) -> list[SecondFactor]:
    query = select(tables.second_factor).where(tables.second_factor.c.person == person)
    return [
        _build_factor(row) for row in tx.sql.execute(query.order_by(tables.second_factor.c.id))
    ]


def list_verified_factors(tx: Transaction) -> list[SecondFactor]:
    """Return all verified factors."""
    query = select(tables.second_factor).where(tables.second_factor.c.verified_at.is_not(None))
    return [
        _build_factor(row) for row in tx.sql.execute(query.order_by(tables.second_factor.c.id))
    ]


def find_factor(tx: Transaction, factor_id: int) -> SecondFactor | None:
    query = select(tables.second_factor).where(tables.second_factor.c.id == factor_id)
    row = tx.sql.execute(query.with_for_update()).one_or_none()
    return _build_factor(row) if row else None


def mark_verified(tx: Transaction, factor: SecondFactor, *, counter: int) -> None:
    _update_factor(tx, factor, verified_at=tx.now, last_counter=counter)


def record_counter(tx: Transaction, factor: SecondFactor, *, counter: int) -> None:
    _update_factor(tx, factor, last_counter=counter)


def confirm_factor(
    tx: Transaction, secret_box: SecretBox, factor: SecondFactor, *, confirmed_by: str
) -> None:
    """Record who confirmed the factor, and encrypt it again. Raises CannotOpenError."""
    plain = open_factor_secret(secret_box, factor)
    context = replace(factor, confirmed_by=confirmed_by).sealed_context
    _update_factor(
        tx,
        factor,
        confirmed_by=confirmed_by,
        sealed=secret_box.seal_secret(plain, context=context),
    )


def remove_factor(tx: Transaction, factor: SecondFactor) -> None:
    tx.sql.execute(delete(tables.second_factor).where(tables.second_factor.c.id == factor.id))


def delete_all_factors(tx: Transaction) -> int:
    """Delete the factors of all people; return their number."""
    return len(
        tx.sql.execute(delete(tables.second_factor).returning(tables.second_factor.c.id)).all()
    )


def _update_factor(tx: Transaction, factor: SecondFactor, **values: object) -> None:
    tx.sql.execute(
        update(tables.second_factor).where(tables.second_factor.c.id == factor.id).values(values)
    )


def _build_factor(row: Row[Any]) -> SecondFactor:
    return SecondFactor(
        row.id,
        row.person,
        row.kind,
        row.digest,
        row.created_at,
        row.verified_at,
        row.last_counter,
        row.confirmed_by,
        row.sealed,
    )
