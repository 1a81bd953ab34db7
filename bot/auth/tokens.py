"""API tokens: found by their prefix, compared by their SHA-256, never kept themselves.

Each row is stamped. What revoked one does so for good: an older row put back opens nothing, since
the change log tells that it was.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, bindparam, insert, or_, select, update

from bot.audit import change_log, followed_log, key_history
from bot.audit.signing import SigningKey
from bot.auth import row_mac
from bot.db import tables
from bot.db.database import Transaction
from bot.model.canonical import encode_canonical

# What tokens begin with, so that people and scanners for secrets know one when they see it.
BEGINS = "kt_"
_PREFIX_BYTES, _SECRET_BYTES = 4, 32
LONGEST = 80
# How exactly it is noted when a token was last used.
NOTE_SECONDS = 60
_SECOND = 1_000_000
MADE, REVOKED, BANNED = "token made", "token revoked", "banned"
_TOKEN, _ENTRY = tables.api_token, tables.entry.c
_LIKE_TOKEN, _LIKE_PERSON = (
    _ENTRY.body.like(bindparam(name), escape="/") for name in ("token", "person")
)
_ENDED = (
    select(_ENTRY.at)
    .where(
        or_((_ENTRY.kind == REVOKED) & _LIKE_TOKEN, (_ENTRY.kind == BANNED) & _LIKE_PERSON),
        _ENTRY.at >= bindparam("since"),
    )
    .limit(1)
)
_MADE = select(tables.entry).where(_ENTRY.kind == MADE, _LIKE_TOKEN)
_FIND = select(_TOKEN).where(_TOKEN.c.prefix == bindparam("begins"))


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


def add_token(
    tx: Transaction, *, person: str, scopes: Sequence[str], name: str, expires: int
) -> tuple[Token, str]:
    """Return what is known of a new token, and the token: nobody can tell it again."""
    prefix = BEGINS + secrets.token_hex(_PREFIX_BYTES)
    whole = f"{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    new = {
        "prefix": prefix,
        "hash": _hashed(whole),
        "person": person,
        "scopes": " ".join(scopes),
        "name": name,
        "made": tx.now,
        "expires": expires,
    }
    row = tx.sql.execute(
        insert(_TOKEN).values(row_mac.add_mac(tx, _TOKEN, new)).returning(_TOKEN)
    ).one()
    return _token(row), whole


def find_token(tx: Transaction, whole: str) -> Token | None:
    """Return the token if it is one of ours, expired and revoked ones too. Only reads."""
    prefix = whole[: len(BEGINS) + 2 * _PREFIX_BYTES]
    if len(whole) > LONGEST or not whole.isascii() or not prefix.startswith(BEGINS):
        return None
    row = tx.sql.execute(_FIND, {"begins": prefix}).first()
    # Compared even if there is none, so that nobody learns from the time which prefixes there are.
    same = hmac.compare_digest(row.hash if row else "", _hashed(whole))
    if row is None or not same or not row_mac.is_mac_valid(tx, _TOKEN, row):
        return None
    found = _token(row)
    return found if found.revoked else replace(found, revoked=_told_revoked(tx, found))


def _told_revoked(tx: Transaction, token: Token) -> int | None:
    """Return when it ended by the log, whoever wrote that there: what shuts something does so.

    What this process has followed counts where the entry was taken out since.
    """
    told = tx.sql.execute(
        _ENDED,
        {
            "since": token.made,
            "token": _speaking_of("token", token.prefix),
            "person": _speaking_of("who", token.person),
        },
    ).first()
    if told:
        return told.at
    revoked = followed_log.find_known_end(tx, REVOKED, token.prefix, since=token.made)
    banned = followed_log.find_known_end(tx, BANNED, token.person, since=token.made)
    return banned if revoked is None else revoked


def _speaking_of(name: str, value: str) -> str:
    """Return what the body of an entry is like that says so."""
    escaped = re.sub(r"([%_/])", r"/\1", encode_canonical({name: value})[1:-1])
    return f"%{escaped}%"


def record_token_use(tx: Transaction, token: Token) -> None:
    _change(tx, token.id, used=tx.now)


def is_use_recent(token: Token, now: int) -> bool:
    """Say whether its last use is noted exactly enough."""
    return token.used is not None and now - token.used < NOTE_SECONDS * _SECOND


def lock_token(tx: Transaction, number: int) -> Token:
    """Return a token and keep others from changing it. Raises NoSuchToken."""
    row = _held(tx, number)
    if row is None:
        raise NoSuchToken(f"there is no token {number}")
    return _token(row)


def revoke_token(tx: Transaction, number: int) -> None:
    _change(tx, number, revoked=tx.now)


def revoke_all_tokens(tx: Transaction, person: str) -> None:
    """Let no token of somebody open anything any more, not even once they are let in again."""
    for token in list_tokens(tx, person):
        if token.revoked is None:
            revoke_token(tx, token.id)


def list_tokens(tx: Transaction, person: str = "") -> list[Token]:
    """Return somebody's tokens, or everybody's, the newest first."""
    query = select(_TOKEN).order_by(_TOKEN.c.id.desc())
    if person:
        query = query.where(_TOKEN.c.person == person)
    return [_token(row) for row in tx.sql.execute(query) if row_mac.is_mac_valid(tx, _TOKEN, row)]


def remac_tokens(tx: Transaction, new: SigningKey) -> list[Token]:
    """Stamp the tokens by the key that comes after ours, as far as the log tells that they were
    made; return those that open something and that it does not tell of, which end here."""
    left: list[Token] = []
    for row in tx.sql.execute(select(_TOKEN)).all():
        ours = row_mac.is_mac_valid(tx, _TOKEN, row)
        if ours and _told_made(tx, _token(row)):
            stamped = {"stamp": row_mac.compute_mac(new, _TOKEN, row)}
            tx.sql.execute(update(_TOKEN).where(_TOKEN.c.id == row.id).values(stamped))
        elif ours and _token(row).holds(tx.now):
            left.append(_token(row))
    return left


def _told_made(tx: Transaction, token: Token) -> bool:
    found = tx.sql.execute(_MADE, {"token": _speaking_of("token", token.prefix)}).all()
    told = key_history.list_vouched_entries(tx, [change_log.Entry(*row) for row in found])
    said = [(one.facts.get("whose"), one.facts.get("scopes")) for one in told]
    return (token.person, list(token.scopes)) in said


def _held(tx: Transaction, number: int) -> Row[Any] | None:
    query = select(_TOKEN).where(_TOKEN.c.id == number).with_for_update()
    row = tx.sql.execute(query).one_or_none()
    return row if row is not None and row_mac.is_mac_valid(tx, _TOKEN, row) else None


def _change(tx: Transaction, number: int, **values: object) -> None:
    row = _held(tx, number)
    if row is not None:
        new = row_mac.amend_with_mac(tx, _TOKEN, row, values)
        tx.sql.execute(update(_TOKEN).where(_TOKEN.c.id == number).values(new))


def _hashed(whole: str) -> str:
    return hashlib.sha256(whole.encode()).hexdigest()


def _token(row: Any) -> Token:
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
