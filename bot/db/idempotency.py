"""Idempotency keys: the stored response of each request with a key, for when it is repeated.

The first change log entry of a request is stored with its key in the same transaction. So if a
request was cut off, it is known what it did, or that it did nothing.
"""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sqlalchemy import Update, delete, func, select, update

from bot.db import tables
from bot.db.database import StoreUnavailable, Transaction
from bot.model.times import SECOND

KEEP_SECONDS = 24 * 3600
# How long a request with a key may still be running; clients wait for at most 30 s.
LEASE_SECONDS = 60
_COLUMN = tables.stored_response.c


@dataclass(frozen=True)
class StoredResponse:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    """Only the headers that belong to the response itself."""
    body: str


@dataclass(frozen=True)
class EarlierRequest:
    """An earlier request with the same key."""

    request: str
    """The digest of the request."""
    answer: StoredResponse | None
    """None if no response is stored so far."""
    entry: int | None
    """The first entry of the change log that it wrote, if any."""
    left: bool
    """Whether it was cut off."""


@dataclass(frozen=True)
class Claim:
    """A key that this request holds."""

    key: str
    at: int
    """Since when, in microseconds: distinguishes it from an earlier holder of the key."""


_CLAIM: ContextVar[Claim | None] = ContextVar("claim", default=None)


def claim_key(tx: Transaction, key: str, *, request: str) -> Claim | EarlierRequest:
    """Claim the key for this request, or return the earlier request that has claimed it.

    The same request can claim it again if it was cut off and did nothing.
    """
    old = tx.now - KEEP_SECONDS * SECOND
    tx.sql.execute(delete(tables.stored_response).where(_COLUMN.claimed_at < old))
    query = select(tables.stored_response).where(_COLUMN.key == key).with_for_update()
    row = None
    # On PostgreSQL the holder may release it between the two statements: then try again.
    while row is None:
        if tx.insert_once(
            tables.stored_response, key=key, request_digest=request, claimed_at=tx.now
        ):
            return Claim(key, tx.now)
        row = tx.sql.execute(query).one_or_none()
    left = row.response is None and row.claimed_at < tx.now - LEASE_SECONDS * SECOND
    if left and row.first_entry is None and row.request_digest == request:
        tx.sql.execute(
            update(tables.stored_response).where(_COLUMN.key == key).values(claimed_at=tx.now)
        )
        return Claim(key, tx.now)
    answer = StoredResponse(**json.loads(row.response)) if row.response else None
    return EarlierRequest(row.request_digest, answer, row.first_entry, left)


@contextmanager
def bind_to_claim(claim: Claim) -> Generator[None]:
    """Bind the change log entries of the block to the request with this key."""
    before = _CLAIM.set(claim)
    try:
        yield
    finally:
        _CLAIM.reset(before)


def bind_entry(tx: Transaction, entry: int) -> None:
    """Store the first entry of the request, if it has a key.

    Raises StoreUnavailable if it took so long that a repetition has claimed the key.
    """
    claim = _CLAIM.get()
    if claim is None or not tx.is_first_call(("bind entry", claim.key)):
        return
    values = {"first_entry": func.coalesce(_COLUMN.first_entry, entry)}
    if (
        tx.sql.execute(_update_claimed(claim).values(values).returning(_COLUMN.key)).one_or_none()
        is None
    ):
        raise StoreUnavailable("the same request was repeated and is running: nothing was done")


def store_response(tx: Transaction, claim: Claim, answer: StoredResponse) -> None:
    """Store the response."""
    response = json.dumps(vars(answer), ensure_ascii=False)
    tx.sql.execute(_update_claimed(claim).values(response=response))


def release_key(tx: Transaction, claim: Claim) -> None:
    """Release the key if nothing was done, so that the request can be repeated."""
    is_ours = (
        (_COLUMN.key == claim.key)
        & (_COLUMN.claimed_at == claim.at)
        & _COLUMN.first_entry.is_(None)
    )
    tx.sql.execute(delete(tables.stored_response).where(is_ours))


def _update_claimed(claim: Claim) -> Update:
    return update(tables.stored_response).where(
        _COLUMN.key == claim.key, _COLUMN.claimed_at == claim.at
    )
