"""API tokens: looked up by prefix, compared by SHA-256, never stored themselves.

Each row has a MAC. A revocation cannot be undone by restoring an older row, because it is also in
the change log.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, bindparam, insert, or_, select, update

from bot.audit import change_log, events, followed_log, inclusion
from bot.auth import row_mac
from bot.db import tables
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.model.canonical import encode_canonical
from bot.model.signing import SigningKey
from connectors.errors import DomainError

# The prefix by which people and secret scanners recognise a token.
TOKEN_PREFIX = "kt_"  # noqa: S105 - not a secret
_PREFIX_BYTES, _SECRET_BYTES = 4, 32
MAX_LENGTH = 80
# What to do, and where, if a token is missing or refused.
CREATE_TOKEN_ADVICE = " ".join(
    (
        "create a token on the web page API tokens,",
        "or on the server with `keyturn token new PERSON --scope request`",
    )
)
# How precisely the last use of a token is recorded.
USE_PRECISION_SECONDS = 60
_SECOND = 1_000_000
_TOKEN, _ENTRY = tables.api_token, tables.entry.c
_LIKE_TOKEN, _LIKE_PERSON = (
    _ENTRY.body.like(bindparam(name), escape="/") for name in ("token", "person")
)
_REVOCATION_OF_TOKEN = (
    select(_ENTRY.at)
    .where(
        or_(
            (_ENTRY.kind == events.TokenRevoked.kind) & _LIKE_TOKEN,
            (_ENTRY.kind == events.Banned.kind) & _LIKE_PERSON,
        ),
        _ENTRY.at >= bindparam("since"),
    )
    .limit(1)
)
_CREATION_OF_TOKEN = select(*tables.ENTRY_MEMBERS).where(
    _ENTRY.kind == events.TokenCreated.kind, _LIKE_TOKEN
)
_FIND_TOKEN = select(_TOKEN).where(_TOKEN.c.prefix == bindparam("begins"))


class NoSuchTokenError(DomainError):
    """There is no token with this number."""

    code, status = "token-not-found", 404


# The scope of agents: only at /mcp, and no other scope beside it.
AGENT_SCOPE = "agent"
# "request" and "approve" include "read".
SCOPES = {
    "read": "read everything that the pages show",
    "request": "request, withdraw and stop runs and schedules",
    "approve": "approve and deny runs, where no rule requires a second factor",
    "metrics": "read the metrics only",
}
MAX_DAYS = 366


@dataclass(frozen=True)
class ApiToken:
    """A token without its secret. Times are microseconds since 1970, UTC; None means not yet."""

    id: int
    prefix: str
    """The public first part of the token."""
    person: str
    """The owner: a person, or an agent by its id."""
    scopes: Sequence[str]
    name: str
    created_at: int
    expires_at: int
    revoked_at: int | None = None
    last_used_at: int | None = None
    behalf: str = ""
    """The person that the agent acts for; "" for none, and for the token of a person."""
    confirmed_at: int | None = None
    """When that person agreed."""

    @property
    def is_confirmed(self) -> bool:
        """Whether the person that an agent acts for with it agreed, if there is one."""
        return not self.behalf or self.confirmed_at is not None

    def is_active(self, now: int) -> bool:
        return self.revoked_at is None and now < self.expires_at


def add_token(
    tx: Transaction,
    *,
    person: str,
    scopes: Sequence[str],
    name: str,
    expires_at: int,
    behalf: str = "",
) -> tuple[ApiToken, str]:
    """Create a token; return its record and the token itself, which is not stored."""
    prefix = TOKEN_PREFIX + secrets.token_hex(_PREFIX_BYTES)
    token = f"{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    new = {
        "prefix": prefix,
        "hash": _hash_token(token),
        "person": person,
        "scopes": " ".join(scopes),
        "name": name,
        "created_at": tx.now,
        "expires_at": expires_at,
        "behalf": behalf or None,
    }
    row = tx.sql.execute(
        insert(_TOKEN).values(row_mac.add_mac(tx, _TOKEN, new)).returning(_TOKEN)
    ).one()
    return _build_token(row), token


def find_token(tx: Transaction, token: str) -> ApiToken | None:
    """Return the record of a token, also if it is expired or revoked. Writes nothing."""
    prefix = token[: len(TOKEN_PREFIX) + 2 * _PREFIX_BYTES]
    if len(token) > MAX_LENGTH or not token.isascii() or not prefix.startswith(TOKEN_PREFIX):
        return None
    row = tx.sql.execute(_FIND_TOKEN, {"begins": prefix}).first()
    # Compared even without a row, so that the response time does not reveal known prefixes.
    same = hmac.compare_digest(row.hash if row else "", _hash_token(token))
    if row is None or not same or not row_mac.is_mac_valid(tx, _TOKEN, row):
        return None
    record = _build_token(row)
    if record.revoked_at:
        return record
    return replace(record, revoked_at=_find_logged_revocation(tx, record))


def _find_logged_revocation(tx: Transaction, token: ApiToken) -> int | None:
    """Return when the token was revoked according to the change log; None if it was not.

    Any matching entry counts, and so does an entry that this process read and that was removed
    from the log since.
    """
    entry = tx.sql.execute(
        _REVOCATION_OF_TOKEN,
        {
            "since": token.created_at,
            "token": _build_like_pattern("token", token.prefix),
            "person": _build_like_pattern("banned_person", token.person),
        },
    ).first()
    if entry:
        return entry.at
    revoked = followed_log.find_known_revocation_time(
        tx, events.TokenRevoked.kind, token.prefix, since=token.created_at
    )
    banned = followed_log.find_known_revocation_time(
        tx, events.Banned.kind, token.person, since=token.created_at
    )
    return banned if revoked is None else revoked


def _build_like_pattern(fact: str, value: str) -> str:
    """Return a LIKE pattern for entries with this fact."""
    escaped = re.sub(r"([%_/])", r"/\1", encode_canonical({fact: value})[1:-1])
    return f"%{escaped}%"


def record_token_use(tx: Transaction, token: ApiToken) -> None:
    _update_token(tx, token.id, last_used_at=tx.now)


def is_use_recorded_recently(token: ApiToken, now: int) -> bool:
    """Return whether the last use was recorded recently enough."""
    return (
        token.last_used_at is not None
        and now - token.last_used_at < USE_PRECISION_SECONDS * _SECOND
    )


def note_token_use(database: Database, token: ApiToken, *, now: int) -> None:
    """Record that a token is used, unless that was recorded recently.

    A database that cannot be written can still be read: people need that in an outage.
    """
    if is_use_recorded_recently(token, now):
        return
    try:
        with database.transaction() as tx:
            record_token_use(tx, token)
    except StoreUnavailable:
        return


def lock_token(tx: Transaction, token_id: int) -> ApiToken:
    """Return a token and lock its row. Raises NoSuchTokenError."""
    row = _lock_row(tx, token_id)
    if row is None:
        raise NoSuchTokenError(f"there is no token {token_id}")
    return _build_token(row)


def revoke_token(tx: Transaction, token_id: int) -> None:
    _update_token(tx, token_id, revoked_at=tx.now)


def confirm_token(tx: Transaction, token_id: int) -> None:
    _update_token(tx, token_id, confirmed_at=tx.now)


def revoke_all_tokens(tx: Transaction, person: str) -> None:
    """Revoke all tokens of a person or agent; they stay revoked after an unban."""
    for token in list_tokens(tx, person):
        if token.revoked_at is None:
            revoke_token(tx, token.id)


def list_tokens(tx: Transaction, person: str = "") -> list[ApiToken]:
    """Return the tokens of a person, or of everyone, newest first.

    The tokens of a person include those with which agents act for them.
    """
    query = select(_TOKEN).order_by(_TOKEN.c.id.desc())
    if person:
        query = query.where(or_(_TOKEN.c.person == person, _TOKEN.c.behalf == person))
    return [
        _build_token(row) for row in tx.sql.execute(query) if row_mac.is_mac_valid(tx, _TOKEN, row)
    ]


def remac_tokens(tx: Transaction, new_key: SigningKey) -> list[ApiToken]:
    """Give the tokens a MAC by a new signing key.

    Tokens whose creation is not in the change log get none and stop working. Return those of them
    that were active.
    """
    dropped: list[ApiToken] = []
    for row in tx.sql.execute(select(_TOKEN)).all():
        is_valid = row_mac.is_mac_valid(tx, _TOKEN, row)
        if is_valid and _is_creation_logged(tx, _build_token(row)):
            values = {"mac": row_mac.compute_mac(new_key, _TOKEN, row)}
            tx.sql.execute(update(_TOKEN).where(_TOKEN.c.id == row.id).values(values))
        elif is_valid and _build_token(row).is_active(tx.now):
            dropped.append(_build_token(row))
    return dropped


def _is_creation_logged(tx: Transaction, token: ApiToken) -> bool:
    rows = tx.sql.execute(
        _CREATION_OF_TOKEN, {"token": _build_like_pattern("token", token.prefix)}
    ).all()
    entries = inclusion.list_vouched_entries(tx, [change_log.Entry(*row) for row in rows])
    created = [
        (event.owner, event.scopes, event.behalf)
        for event in (entry.event for entry in entries)
        if isinstance(event, events.TokenCreated)
    ]
    return (token.person, tuple(token.scopes), token.behalf) in created


def _lock_row(tx: Transaction, token_id: int) -> Row[Any] | None:
    query = select(_TOKEN).where(_TOKEN.c.id == token_id).with_for_update()
    row = tx.sql.execute(query).one_or_none()
    return row if row is not None and row_mac.is_mac_valid(tx, _TOKEN, row) else None


def _update_token(tx: Transaction, token_id: int, **values: object) -> None:
    row = _lock_row(tx, token_id)
    if row is not None:
        new = row_mac.amend_with_mac(tx, _TOKEN, row, values)
        tx.sql.execute(update(_TOKEN).where(_TOKEN.c.id == token_id).values(new))


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _build_token(row: Any) -> ApiToken:
    return ApiToken(
        id=row.id,
        prefix=row.prefix,
        person=row.person,
        scopes=tuple(row.scopes.split()),
        name=row.name,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
        behalf=row.behalf or "",
        confirmed_at=row.confirmed_at,
    )
