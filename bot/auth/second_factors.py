"""The second factors of people: sealed, counted up, confirmed, removed."""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from bot.auth.secret_box import SecretBox
from bot.db import tables
from bot.db.database import Transaction
from bot.model.canonical import Canonical


@dataclass(frozen=True)
class SecondFactor:
    """One factor of one person. kind: totp or passkey. digest: 32 hex digits that name it.

    made, proven: microseconds; proven: when its owner showed that they have it, None if not yet.
    last_counter: the last time step, or the last count of uses; nothing up to it works again.
    confirmed_by: who else vouched for it, "" if nobody.
    """

    id: int
    person: str
    kind: str
    digest: str
    created_at: int
    verified_at: int | None
    last_counter: int
    confirmed_by: str
    sealed: str

    @property
    def sealed_context(self) -> Canonical:
        """What is sealed with the secret: none of it can be altered in the database."""
        return {
            "person": self.person,
            "kind": self.kind,
            "digest": self.digest,
            "confirmed_by": self.confirmed_by,
        }


def add_factor(
    tx: Transaction, secret_box: SecretBox, *, person: str, kind: str, digest: str, secret: str
) -> SecondFactor:
    """Keep a factor that nobody has proven yet."""
    new = SecondFactor(0, person, kind, digest, tx.now, None, 0, "", "")
    values = {name: value for name, value in vars(new).items() if name != "id"}
    values["sealed"] = secret_box.seal_secret(secret, context=new.sealed_context)
    row = tx.sql.execute(
        insert(tables.second_factor).values(values).returning(tables.second_factor)
    ).one()
    return _build_factor(row)


def open_factor_secret(secret_box: SecretBox, factor: SecondFactor) -> str:
    """Return what makes its codes, or its public key. Raises DoesNotOpen."""
    return secret_box.open_secret(factor.sealed, context=factor.sealed_context)


def lock_factors(tx: Transaction, person: str) -> list[SecondFactor]:
    """Return a person's factors, and keep others from using them until this transaction ends."""
    query = select(tables.second_factor).where(tables.second_factor.c.person == person)
    rows = tx.sql.execute(query.order_by(tables.second_factor.c.id).with_for_update())
    return [_build_factor(row) for row in rows]


def list_factors(tx: Transaction, person: str) -> list[SecondFactor]:
    query = select(tables.second_factor).where(tables.second_factor.c.person == person)
    return [
        _build_factor(row) for row in tx.sql.execute(query.order_by(tables.second_factor.c.id))
    ]


def list_verified_factors(tx: Transaction) -> list[SecondFactor]:
    """Return every factor that its owner has proven."""
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
    """Seal it anew, with who vouched for it. Raises DoesNotOpen."""
    plain = open_factor_secret(secret_box, factor)
    about = replace(factor, confirmed_by=confirmed_by).sealed_context
    _update_factor(
        tx, factor, confirmed_by=confirmed_by, sealed=secret_box.seal_secret(plain, context=about)
    )


def remove_factor(tx: Transaction, factor: SecondFactor) -> None:
    tx.sql.execute(delete(tables.second_factor).where(tables.second_factor.c.id == factor.id))


def delete_all_factors(tx: Transaction) -> int:
    """Remove everybody's, and return how many there were."""
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
