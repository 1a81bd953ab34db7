"""The second factors of people: sealed, counted up, confirmed, removed."""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from bot.auth.secret_box import SecretBox
from bot.db import tables
from bot.db.database import Transaction
from bot.model.canonical import Canonical


@dataclass(frozen=True)
class Factor:
    """One factor of one person. kind: totp or passkey. digest: 32 hex digits that name it.

    made, proven: microseconds; proven: when its owner showed that they have it, None if not yet.
    used: the last time step, or the last count of uses; nothing up to it works again.
    confirmed_by: who else vouched for it, "" if nobody.
    """

    id: int
    person: str
    kind: str
    digest: str
    made: int
    proven: int | None
    used: int
    confirmed_by: str
    sealed: str

    @property
    def about(self) -> Canonical:
        """What is sealed with the secret: none of it can be altered in the database."""
        return {
            "person": self.person,
            "kind": self.kind,
            "digest": self.digest,
            "confirmed_by": self.confirmed_by,
        }


def add_factor(
    tx: Transaction, safe: SecretBox, *, person: str, kind: str, digest: str, secret: str
) -> Factor:
    """Keep a factor that nobody has proven yet."""
    new = Factor(0, person, kind, digest, tx.now, None, 0, "", "")
    values = {name: value for name, value in vars(new).items() if name != "id"}
    values["sealed"] = safe.seal(secret, about=new.about)
    row = tx.sql.execute(insert(tables.factor).values(values).returning(tables.factor)).one()
    return _factor(row)


def open_secret(safe: SecretBox, factor: Factor) -> str:
    """Return what makes its codes, or its public key. Raises DoesNotOpen."""
    return safe.open(factor.sealed, about=factor.about)


def lock_factors(tx: Transaction, person: str) -> list[Factor]:
    """Return a person's factors, and keep others from using them until this transaction ends."""
    query = select(tables.factor).where(tables.factor.c.person == person)
    rows = tx.sql.execute(query.order_by(tables.factor.c.id).with_for_update())
    return [_factor(row) for row in rows]


def list_factors(tx: Transaction, person: str) -> list[Factor]:
    query = select(tables.factor).where(tables.factor.c.person == person)
    return [_factor(row) for row in tx.sql.execute(query.order_by(tables.factor.c.id))]


def list_all_factors(tx: Transaction) -> list[Factor]:
    """Return every factor that its owner has proven."""
    query = select(tables.factor).where(tables.factor.c.proven.is_not(None))
    return [_factor(row) for row in tx.sql.execute(query.order_by(tables.factor.c.id))]


def get_factor(tx: Transaction, number: int) -> Factor | None:
    query = select(tables.factor).where(tables.factor.c.id == number)
    row = tx.sql.execute(query.with_for_update()).one_or_none()
    return _factor(row) if row else None


def mark_proven(tx: Transaction, factor: Factor, *, used: int) -> None:
    _change(tx, factor, proven=tx.now, used=used)


def mark_used(tx: Transaction, factor: Factor, *, used: int) -> None:
    _change(tx, factor, used=used)


def confirm_factor(tx: Transaction, safe: SecretBox, factor: Factor, *, by: str) -> None:
    """Seal it anew, with who vouched for it. Raises DoesNotOpen."""
    plain = open_secret(safe, factor)
    about = replace(factor, confirmed_by=by).about
    _change(tx, factor, confirmed_by=by, sealed=safe.seal(plain, about=about))


def remove_factor(tx: Transaction, factor: Factor) -> None:
    tx.sql.execute(delete(tables.factor).where(tables.factor.c.id == factor.id))


def delete_all_factors(tx: Transaction) -> int:
    """Remove everybody's, and return how many there were."""
    return len(tx.sql.execute(delete(tables.factor).returning(tables.factor.c.id)).all())


def _change(tx: Transaction, factor: Factor, **values: object) -> None:
    tx.sql.execute(update(tables.factor).where(tables.factor.c.id == factor.id).values(values))


def _factor(row: Row[Any]) -> Factor:
    return Factor(
        row.id,
        row.person,
        row.kind,
        row.digest,
        row.made,
        row.proven,
        row.used,
        row.confirmed_by,
        row.sealed,
    )
