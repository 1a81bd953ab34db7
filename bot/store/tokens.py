"""API tokens: found by their prefix, compared by their SHA-256, never kept themselves."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, insert, select, update

from bot.store import programs
from bot.store.database import Transaction

# What tokens begin with, so that people and scanners for secrets know one when they see it.
BEGINS = "kt_"
_PREFIX_BYTES, _SECRET_BYTES = 4, 32
LONGEST = 80
# How exactly it is noted when a token was last used.
NOTE_SECONDS = 60
_SECOND = 1_000_000


class NoSuchToken(Exception):
    """There is no token with this number."""


@dataclass(frozen=True)
class Token:
    """What is known of a token. Times are microseconds since 1970, UTC; None means not yet.

    prefix: its beginning, by which people tell it from others. scopes: what it is for.
    """

    id: int
    prefix: str
    person: str
    scopes: Sequence[str]
    name: str
    made: int
    expires: int
    revoked: int | None = None
    used: int | None = None

    def holds(self, now: int) -> bool:
        return self.revoked is None and now < self.expires


def add(
    tx: Transaction, *, person: str, scopes: Sequence[str], name: str, expires: int
) -> tuple[Token, str]:
    """Return what is known of a new token, and the token: nobody can tell it again."""
    prefix = BEGINS + secrets.token_hex(_PREFIX_BYTES)
    whole = f"{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    row = tx.sql.execute(
        insert(programs.api_token)
        .values(
            prefix=prefix,
            hash=_hashed(whole),
            person=person,
            scopes=" ".join(scopes),
            name=name,
            made=tx.now,
            expires=expires,
        )
        .returning(programs.api_token)
    ).one()
    return _token(row), whole


def find(tx: Transaction, whole: str) -> Token | None:
    """Return the token if it is one of ours, expired and revoked ones too. Only reads."""
    prefix = whole[: len(BEGINS) + 2 * _PREFIX_BYTES]
    if len(whole) > LONGEST or not whole.isascii() or not prefix.startswith(BEGINS):
        return None
    column = programs.api_token.c
    row = tx.sql.execute(select(programs.api_token).where(column.prefix == prefix)).one_or_none()
    # Compared even if there is none, so that nobody learns from the time which prefixes there are.
    same = hmac.compare_digest(row.hash if row else "", _hashed(whole))
    return _token(row) if row is not None and same else None


def note_use(tx: Transaction, token: Token) -> None:
    _change(tx, token.id, used=tx.now)


def used_lately(token: Token, now: int) -> bool:
    """Say whether its last use is noted exactly enough."""
    return token.used is not None and now - token.used < NOTE_SECONDS * _SECOND


def hold(tx: Transaction, number: int) -> Token:
    """Return a token and keep others from changing it. Raises NoSuchToken."""
    query = select(programs.api_token).where(programs.api_token.c.id == number).with_for_update()
    row = tx.sql.execute(query).one_or_none()
    if row is None:
        raise NoSuchToken(f"there is no token {number}")
    return _token(row)


def revoke(tx: Transaction, number: int) -> None:
    _change(tx, number, revoked=tx.now)


def revoke_all(tx: Transaction, person: str) -> None:
    """Let no token of somebody open anything any more, not even once they are let in again."""
    column = programs.api_token.c
    tx.sql.execute(
        update(programs.api_token)
        .where(column.person == person, column.revoked.is_(None))
        .values(revoked=tx.now)
    )


def listed(tx: Transaction, person: str = "") -> list[Token]:
    """Return somebody's tokens, or everybody's, the newest first."""
    query = select(programs.api_token).order_by(programs.api_token.c.id.desc())
    if person:
        query = query.where(programs.api_token.c.person == person)
    return [_token(row) for row in tx.sql.execute(query)]


def _change(tx: Transaction, number: int, **values: object) -> None:
    tx.sql.execute(
        update(programs.api_token).where(programs.api_token.c.id == number).values(**values)
    )


def _hashed(whole: str) -> str:
    return hashlib.sha256(whole.encode()).hexdigest()


def _token(row: Row[Any]) -> Token:
    return Token(
        id=row.id,
        prefix=row.prefix,
        person=row.person,
        scopes=tuple(row.scopes.split()),
        name=row.name,
        made=row.made,
        expires=row.expires,
        revoked=row.revoked,
        used=row.used,
    )
