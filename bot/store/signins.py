"""Sign-ins: one-time links and browser sessions, kept as hashes of their tokens."""

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy import delete, insert, select, update

from bot.store import tables
from bot.store.database import Transaction

LINK_SECONDS = 10 * 60
IDLE_SECONDS = 30 * 60
LONGEST_SECONDS = 12 * 3600
# How exactly it is noted when a session was last used.
NOTE_SECONDS = 60
_SECOND = 1_000_000


@dataclass(frozen=True)
class Session:
    """Somebody signed in. began, last_seen: microseconds."""

    person: str
    began: int
    last_seen: int


def new_link(tx: Transaction, person: str, *, seconds: int = LINK_SECONDS) -> str:
    """Return a token that signs *person* in once."""
    token = secrets.token_urlsafe(32)
    tx.sql.execute(
        insert(tables.sign_in_link).values(
            token=_hashed(token), person=person, expires=tx.now + seconds * _SECOND
        )
    )
    return token


def use_link(tx: Transaction, token: str) -> str | None:
    """Return whom the link signs in, once; None if it is unknown, used or too old."""
    link = tables.sign_in_link
    row = tx.sql.execute(
        update(link)
        .where(link.c.token == _hashed(token), link.c.used.is_(None), link.c.expires > tx.now)
        .values(used=tx.now)
        .returning(link.c.person)
    ).one_or_none()
    return row.person if row else None


def begin(tx: Transaction, person: str) -> str:
    """Return the token of a new session."""
    token = secrets.token_urlsafe(32)
    tx.sql.execute(
        insert(tables.session).values(
            token=_hashed(token), person=person, began=tx.now, last_seen=tx.now
        )
    )
    return token


def find(tx: Transaction, token: str) -> Session | None:
    """Return the session, as long as it lasts. Only reads."""
    session = tables.session
    row = tx.sql.execute(select(session).where(session.c.token == _hashed(token))).one_or_none()
    if row is None:
        return None
    idle = tx.now - row.last_seen > IDLE_SECONDS * _SECOND
    if idle or tx.now - row.began > LONGEST_SECONDS * _SECOND:
        return None
    return Session(row.person, row.began, row.last_seen)


def person_of(tx: Transaction, token: str) -> str | None:
    """Return whose session this is and keep it alive; None if it has ended."""
    found = find(tx, token)
    if found is None:
        end(tx, token)
        return None
    if tx.now - found.last_seen > NOTE_SECONDS * _SECOND:
        session = tables.session
        tx.sql.execute(
            update(session).where(session.c.token == _hashed(token)).values(last_seen=tx.now)
        )
    return found.person


def end(tx: Transaction, token: str) -> None:
    tx.sql.execute(delete(tables.session).where(tables.session.c.token == _hashed(token)))


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
