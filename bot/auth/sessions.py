"""Sign-ins: one-time links and browser sessions, kept as hashes of their tokens, and stamped."""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, bindparam, delete, insert, select, update

from bot.auth import row_mac
from bot.db import tables
from bot.db.database import Transaction

LINK_SECONDS = 10 * 60
IDLE_SECONDS = 30 * 60
MAX_SECONDS = 12 * 3600
# How long a second factor counts after it was shown, in the session in which it was.
STEP_UP_SECONDS = 5 * 60
CHALLENGE_SECONDS = 5 * 60
# How exactly it is noted when a session was last used.
LAST_SEEN_PRECISION_SECONDS = 60
MAX_AGENT_LENGTH = 200
_SECOND = 1_000_000
_NAME_LENGTH = 16
_SESSION, _LINK = tables.session, tables.sign_in_link
_FIND_SESSION = select(_SESSION).where(_SESSION.c.token == bindparam("hashed"))


@dataclass(frozen=True)
class Session:
    """Somebody signed in. began, last_seen: microseconds.

    stepped_up: when they last showed their second factor here, and factor its digest.
    by: what they signed in by. agent: what the browser calls itself. name: tells sessions apart
    and opens none.
    """

    person: str
    started_at: int
    last_seen_at: int
    stepped_up_at: int | None = None
    factor_digest: str = ""
    signed_in_by: str = ""
    user_agent: str = ""
    name: str = ""

    def is_step_up_recent(self, now: int) -> bool:
        """Whether the second factor was shown so lately that it still counts."""
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
    """Return whom the link signs in, once; None if it is unknown, used or too old."""
    row = _lock_row(tx, _LINK, token)
    if row is None or row.used_at is not None or row.expires_at <= tx.now:
        return None
    _update_row(tx, _LINK, row, used_at=tx.now)
    return row.person


def read_sign_in_link(tx: Transaction, token: str) -> str | None:
    """Return whom the link would sign in, and leave it as it is; None as `use_link` does."""
    query = select(_LINK).where(_LINK.c.token == _hash_token(token))
    row = tx.sql.execute(query).one_or_none()
    if row is None or not row_mac.is_mac_valid(tx, _LINK, row):
        return None
    return row.person if row.used_at is None and row.expires_at > tx.now else None


def describe_refused_link(tx: Transaction, token: str) -> tuple[str, str]:
    """Return whom a link would have signed in, "" if nobody, and what is wrong with it."""
    row = _lock_row(tx, _LINK, token)
    if row is None:
        return "", "the link is none of ours"
    if row.expires_at <= tx.now:
        return row.person, "the link is too old"
    return row.person, "the link was used before"


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
    """Return the session, as long as it lasts. Only reads."""
    row = tx.sql.execute(_FIND_SESSION, {"hashed": _hash_token(token)}).one_or_none()
    if row is None or not row_mac.is_mac_valid(tx, _SESSION, row):
        return None
    return _build_active_session(tx, row)


def list_sessions(tx: Transaction, person: str) -> list[Session]:
    """Return somebody's sessions that last, the one that was used last first."""
    mine = select(_SESSION).where(_SESSION.c.person == person)
    rows = tx.sql.execute(mine.order_by(_SESSION.c.last_seen_at.desc(), _SESSION.c.token))
    ours = [row for row in rows if row_mac.is_mac_valid(tx, _SESSION, row)]
    return [found for row in ours if (found := _build_active_session(tx, row)) is not None]


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
    """Return whose session this is and keep it alive; None if it has ended."""
    found = find_session(tx, token)
    if found is None:
        end_session(tx, token)
        return None
    if tx.now - found.last_seen_at > LAST_SEEN_PRECISION_SECONDS * _SECOND:
        _update_session(tx, token, last_seen_at=tx.now)
    return found.person


def record_step_up(tx: Transaction, token: str, *, factor_digest: str) -> None:
    """Note that the person of this session has just shown a second factor."""
    _update_session(tx, token, stepped_up_at=tx.now, factor_digest=factor_digest)


def create_challenge(tx: Transaction, token: str) -> bytes:
    """Return what a key is to sign for this session next; what was to be signed before is void."""
    challenge = secrets.token_bytes(32)
    _update_session(tx, token, challenge=challenge.hex(), challenged_at=tx.now)
    return challenge


def take_challenge(tx: Transaction, token: str) -> bytes | None:
    """Return what was to be signed, once; None if there is nothing, or it is too old."""
    row = _lock_row(tx, _SESSION, token)
    if row is None or not row.challenge:
        return None
    _update_row(tx, _SESSION, row, challenge="", challenged_at=None)
    late = tx.now - row.challenged_at > CHALLENGE_SECONDS * _SECOND
    return None if late else bytes.fromhex(row.challenge)


def _update_session(tx: Transaction, token: str, **values: object) -> None:
    row = _lock_row(tx, _SESSION, token)
    if row is not None:
        _update_row(tx, _SESSION, row, **values)


def _lock_row(tx: Transaction, table: Table, token: str) -> Any:
    """Return the row of a token, kept from others until this transaction ends; None if there is
    none that we wrote."""
    query = select(table).where(table.c.token == _hash_token(token)).with_for_update()
    row = tx.sql.execute(query).one_or_none()
    return row if row is not None and row_mac.is_mac_valid(tx, table, row) else None


def _update_row(tx: Transaction, table: Table, row: Any, **values: object) -> None:
    """Write what is new into a row that is held."""
    new = row_mac.amend_with_mac(tx, table, row, values)
    tx.sql.execute(update(table).where(table.c.token == row.token).values(new))


def end_session(tx: Transaction, token: str) -> None:
    tx.sql.execute(delete(_SESSION).where(_SESSION.c.token == _hash_token(token)))


def end_named_session(tx: Transaction, person: str, session_name: str) -> bool:
    """End one of somebody's sessions; False if they have none with this name."""
    if len(session_name) != _NAME_LENGTH:
        return False
    named = _SESSION.c.token.startswith(session_name, autoescape=True)
    ended = tx.sql.execute(delete(_SESSION).where(_SESSION.c.person == person, named))
    return ended.rowcount > 0


def end_all_sessions(tx: Transaction, person: str) -> None:
    """End every session of somebody, and every link that would begin one."""
    for table in (_SESSION, _LINK):
        tx.sql.execute(delete(table).where(table.c.person == person))


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
