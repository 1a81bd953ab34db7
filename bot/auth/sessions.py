"""Sign-in links and browser sessions, stored as hashes of their tokens, each with a MAC."""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, bindparam, delete, insert, select, update

from bot.auth import row_mac
from bot.db import tables
from bot.db.database import Transaction

LINK_SECONDS = 10 * 60
IDLE_SECONDS = 30 * 60
MAX_SECONDS = 12 * 3600
# How long a second factor counts in the session in which it was used.
STEP_UP_SECONDS = 5 * 60
CHALLENGE_SECONDS = 5 * 60
# How precisely the last use of a session is recorded.
LAST_SEEN_PRECISION_SECONDS = 60
MAX_AGENT_LENGTH = 200
_SECOND = 1_000_000
_NAME_LENGTH = 16
_SESSION, _LINK = tables.session, tables.sign_in_link
_FIND_SESSION = select(_SESSION).where(_SESSION.c.token == bindparam("hashed"))


@dataclass(frozen=True)
class Session:
    """A session of a signed-in person. Times are microseconds since 1970, UTC."""

    person: str
    started_at: int
    last_seen_at: int
    stepped_up_at: int | None = None
    """When a second factor was last used in this session."""
    factor_digest: str = ""
    """The digest of that second factor."""
    signed_in_by: str = ""
    """The way of signing in, such as `link`."""
    user_agent: str = ""
    name: str = ""
    """Identifies the session, and gives no access to it."""

    def is_step_up_recent(self, now: int) -> bool:
        """Return whether the second factor was used recently enough to count."""
        return (
            self.stepped_up_at is not None and now - self.stepped_up_at < STEP_UP_SECONDS * _SECOND
        )


def create_sign_in_link(tx: Transaction, person: str, *, seconds: int = LINK_SECONDS) -> str:
    """Return a token that signs *person* in once."""
    token = secrets.token_urlsafe(32)
    new = {"token": _hash_token(token), "person": person, "expires_at": tx.now + seconds * _SECOND}
    tx.sql.execute(insert(_LINK).values(row_mac.add_mac(tx, _LINK, new)))
    return token


def use_sign_in_link(tx: Transaction, token: str) -> str | None:
    """Use up a link and return its person; None if it is unknown, used or expired."""
    row = _lock_row(tx, _LINK, token)
    if row is None or row.used_at is not None or row.expires_at <= tx.now:
        return None
    _update_row(tx, _LINK, row, used_at=tx.now)
    return row.person


def read_sign_in_link(tx: Transaction, token: str) -> str | None:
    """Return the person of a link without using it up; None as in `use_sign_in_link`."""
    query = select(_LINK).where(_LINK.c.token == _hash_token(token))
    row = tx.sql.execute(query).one_or_none()
    if row is None or not row_mac.is_mac_valid(tx, _LINK, row):
        return None
    return row.person if row.used_at is None and row.expires_at > tx.now else None


def describe_refused_link(tx: Transaction, token: str) -> tuple[str, str]:
    """Return the person of a link ("" if unknown), and why it is refused."""
    row = _lock_row(tx, _LINK, token)
    if row is None:
        return "", "the link is unknown"
    if row.expires_at <= tx.now:
        return row.person, "the link has expired"
    return row.person, "the link was already used"


def begin_session(
    tx: Transaction, person: str, *, signed_in_by: str = "link", user_agent: str = ""
) -> str:
    """Return the token of a new session."""
    token = secrets.token_urlsafe(32)
    new: dict[str, Any] = {
        "token": _hash_token(token),
        "person": person,
        "started_at": tx.now,
        "last_seen_at": tx.now,
        "factor_digest": "",
        "challenge": "",
        "signed_in_by": signed_in_by,
        "user_agent": user_agent,
    }
    tx.sql.execute(insert(_SESSION).values(row_mac.add_mac(tx, _SESSION, new)))
    return token


def find_session(tx: Transaction, token: str) -> Session | None:
    """Return the session of a token; None if it has ended. Writes nothing."""
    row = tx.sql.execute(_FIND_SESSION, {"hashed": _hash_token(token)}).one_or_none()
    if row is None or not row_mac.is_mac_valid(tx, _SESSION, row):
        return None
    return _build_active_session(tx, row)


def list_active(tx: Transaction, tokens: Collection[str]) -> frozenset[str]:
    """Return those of these tokens whose sessions have not ended."""
    by_hash = {_hash_token(token): token for token in tokens}
    rows = tx.sql.execute(select(_SESSION).where(_SESSION.c.token.in_(by_hash))).all()
    return frozenset(
        by_hash[row.token]
        for row in rows
        if row_mac.is_mac_valid(tx, _SESSION, row) and _build_active_session(tx, row)
    )


def list_sessions(tx: Transaction, person: str) -> list[Session]:
    """Return the active sessions of a person, the one used last first."""
    query = select(_SESSION).where(_SESSION.c.person == person)
    rows = tx.sql.execute(query.order_by(_SESSION.c.last_seen_at.desc(), _SESSION.c.token))
    valid = [row for row in rows if row_mac.is_mac_valid(tx, _SESSION, row)]
    return [session for row in valid if (session := _build_active_session(tx, row)) is not None]


def _build_active_session(tx: Transaction, row: Any) -> Session | None:
    idle = tx.now - row.last_seen_at > IDLE_SECONDS * _SECOND
    if idle or tx.now - row.started_at > MAX_SECONDS * _SECOND:
        return None
    return Session(
        row.person,
        row.started_at,
        row.last_seen_at,
        row.stepped_up_at,
        row.factor_digest,
        row.signed_in_by,
        row.user_agent,
        row.token[:_NAME_LENGTH],
    )


def touch_session(tx: Transaction, token: str) -> str | None:
    """Record the use of a session and return its person; None if it has ended."""
    session = find_session(tx, token)
    if session is None:
        end_session(tx, token)
        return None
    if tx.now - session.last_seen_at > LAST_SEEN_PRECISION_SECONDS * _SECOND:
        _update_session(tx, token, last_seen_at=tx.now)
    return session.person


def record_step_up(tx: Transaction, token: str, *, factor_digest: str) -> None:
    """Record that the person has just used a second factor in this session."""
    _update_session(tx, token, stepped_up_at=tx.now, factor_digest=factor_digest)


def create_challenge(tx: Transaction, token: str) -> bytes:
    """Create the challenge that a passkey must sign next; an earlier one becomes invalid."""
    challenge = secrets.token_bytes(32)
    _update_session(tx, token, challenge=challenge.hex(), challenged_at=tx.now)
    return challenge


def take_challenge(tx: Transaction, token: str) -> bytes | None:
    """Use up and return the challenge of a session; None without one, or if it has expired."""
    row = _lock_row(tx, _SESSION, token)
    if row is None or not row.challenge:
        return None
    _update_row(tx, _SESSION, row, challenge="", challenged_at=None)
    is_expired = tx.now - row.challenged_at > CHALLENGE_SECONDS * _SECOND
    return None if is_expired else bytes.fromhex(row.challenge)


def _update_session(tx: Transaction, token: str, **values: object) -> None:
    row = _lock_row(tx, _SESSION, token)
    if row is not None:
        _update_row(tx, _SESSION, row, **values)


def _lock_row(tx: Transaction, table: Table, token: str) -> Any:
    """Return the row of a token, locked until this transaction ends; None without a valid one."""
    query = select(table).where(table.c.token == _hash_token(token)).with_for_update()
    row = tx.sql.execute(query).one_or_none()
    return row if row is not None and row_mac.is_mac_valid(tx, table, row) else None


def _update_row(tx: Transaction, table: Table, row: Any, **values: object) -> None:
    """Update a locked row and its MAC."""
    new = row_mac.amend_with_mac(tx, table, row, values)
    tx.sql.execute(update(table).where(table.c.token == row.token).values(new))


def end_session(tx: Transaction, token: str) -> None:
    tx.sql.execute(delete(_SESSION).where(_SESSION.c.token == _hash_token(token)))


def end_named_session(tx: Transaction, person: str, session_name: str) -> bool:
    """End one session of a person; return False if there is none with this name."""
    if len(session_name) != _NAME_LENGTH:
        return False
    named = _SESSION.c.token.startswith(session_name, autoescape=True)
    ended = tx.sql.execute(delete(_SESSION).where(_SESSION.c.person == person, named))
    return ended.rowcount > 0


def end_all_sessions(tx: Transaction, person: str) -> None:
    """End all sessions of a person, and delete their sign-in links."""
    for table in (_SESSION, _LINK):
        tx.sql.execute(delete(table).where(table.c.person == person))


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
