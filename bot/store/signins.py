"""Sign-ins: one-time links and browser sessions, kept as hashes of their tokens."""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from bot.store import tables
from bot.store.database import Transaction
from bot.store.rote import Rote

LINK_SECONDS = 10 * 60
IDLE_SECONDS = 30 * 60
LONGEST_SECONDS = 12 * 3600
# How long a second factor counts after it was shown, in the session in which it was.
STEP_UP_SECONDS = 5 * 60
CHALLENGE_SECONDS = 5 * 60
# How exactly it is noted when a session was last used.
NOTE_SECONDS = 60
LONGEST_AGENT = 200
_SECOND = 1_000_000
_NAME_LETTERS = 16
_FIND = Rote(select(tables.session).where(tables.session.c.token == bindparam("hashed")))


@dataclass(frozen=True)
class Session:
    """Somebody signed in. began, last_seen: microseconds.

    stepped_up: when they last showed their second factor here, and factor its digest.
    by: what they signed in by. agent: what the browser calls itself. name: tells sessions apart
    and opens none.
    """

    person: str
    began: int
    last_seen: int
    stepped_up: int | None = None
    factor: str = ""
    by: str = ""
    agent: str = ""
    name: str = ""

    def fresh(self, now: int) -> bool:
        """Whether the second factor was shown so lately that it still counts."""
        return self.stepped_up is not None and now - self.stepped_up < STEP_UP_SECONDS * _SECOND


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


def why_refused(tx: Transaction, token: str) -> tuple[str, str]:
    """Return whom a link would have signed in, "" if nobody, and what is wrong with it."""
    link = tables.sign_in_link
    row = tx.sql.execute(select(link).where(link.c.token == _hashed(token))).one_or_none()
    if row is None:
        return "", "the link is none of ours"
    if row.expires <= tx.now:
        return row.person, "the link is too old"
    return row.person, "the link was used before"


def begin(tx: Transaction, person: str, *, by: str = "link", agent: str = "") -> str:
    """Return the token of a new session."""
    token = secrets.token_urlsafe(32)
    tx.sql.execute(
        insert(tables.session).values(
            token=_hashed(token),
            person=person,
            began=tx.now,
            last_seen=tx.now,
            by=by,
            agent=agent,
        )
    )
    return token


def find(tx: Transaction, token: str) -> Session | None:
    """Return the session, as long as it lasts. Only reads."""
    row = _FIND.row(tx, hashed=_hashed(token))
    return None if row is None else _lasting(tx, row)


def of(tx: Transaction, person: str) -> list[Session]:
    """Return somebody's sessions that last, the one that was used last first."""
    session = tables.session.c
    rows = tx.sql.execute(
        select(tables.session)
        .where(session.person == person)
        .order_by(session.last_seen.desc(), session.token)
    )
    return [found for row in rows if (found := _lasting(tx, row)) is not None]


def _lasting(tx: Transaction, row: Any) -> Session | None:
    idle = tx.now - row.last_seen > IDLE_SECONDS * _SECOND
    if idle or tx.now - row.began > LONGEST_SECONDS * _SECOND:
        return None
    return Session(
        row.person,
        row.began,
        row.last_seen,
        row.stepped_up,
        row.factor,
        row.by,
        row.agent,
        row.token[:_NAME_LETTERS],
    )


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


def step_up(tx: Transaction, token: str, *, factor: str) -> None:
    """Note that the person of this session has just shown a second factor."""
    _note(tx, token, stepped_up=tx.now, factor=factor)


def new_challenge(tx: Transaction, token: str) -> bytes:
    """Return what a key is to sign for this session next; what was to be signed before is void."""
    challenge = secrets.token_bytes(32)
    _note(tx, token, challenge=challenge.hex(), challenged=tx.now)
    return challenge


def take_challenge(tx: Transaction, token: str) -> bytes | None:
    """Return what was to be signed, once; None if there is nothing, or it is too old."""
    session = tables.session
    row = tx.sql.execute(
        select(session).where(session.c.token == _hashed(token)).with_for_update()
    ).one_or_none()
    if row is None or not row.challenge:
        return None
    _note(tx, token, challenge="", challenged=None)
    late = tx.now - row.challenged > CHALLENGE_SECONDS * _SECOND
    return None if late else bytes.fromhex(row.challenge)


def _note(tx: Transaction, token: str, **values: object) -> None:
    session = tables.session
    tx.sql.execute(update(session).where(session.c.token == _hashed(token)).values(values))


def end(tx: Transaction, token: str) -> None:
    tx.sql.execute(delete(tables.session).where(tables.session.c.token == _hashed(token)))


def end_named(tx: Transaction, person: str, name: str) -> bool:
    """End one of somebody's sessions; False if they have none with this name."""
    if len(name) != _NAME_LETTERS:
        return False
    session = tables.session
    ended = tx.sql.execute(
        delete(session).where(
            session.c.person == person, session.c.token.startswith(name, autoescape=True)
        )
    )
    return ended.rowcount > 0


def end_all(tx: Transaction, person: str) -> None:
    """End every session of somebody, and every link that would begin one."""
    for table in (tables.session, tables.sign_in_link):
        tx.sql.execute(delete(table).where(table.c.person == person))


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
