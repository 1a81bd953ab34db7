"""Answers: what was answered to a request with a key of its own, for when it comes again.

The first entry of the change log that a request writes is noted with its key, in the same
transaction. So where it was cut off, what it did is known, or it is known to have done nothing.
"""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sqlalchemy import Update, delete, func, select, update

from bot.db import tables
from bot.db.database import StoreUnavailable, Transaction

KEEP_SECONDS = 24 * 3600
# For so long whoever has a key is believed to be at work; callers wait for 30 s at the most.
LEASE_SECONDS = 60
_SECOND = 1_000_000
_OF = tables.stored_response.c


@dataclass(frozen=True)
class StoredResponse:
    """status: of HTTP. headers: those that belong to the answer itself. body: its text."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class EarlierRequest:
    """A request with the same key. request: its digest. answer: None as long as none was kept.

    entry: the first of the change log that it wrote, if any. left: it was cut off.
    """

    request: str
    answer: StoredResponse | None
    entry: int | None
    left: bool


@dataclass(frozen=True)
class Claim:
    """A key in our hands. at: since when, by which we are told from who had it before."""

    key: str
    at: int


_CLAIM: ContextVar[Claim | None] = ContextVar("claim", default=None)


def claim_key(tx: Transaction, key: str, *, request: str) -> Claim | EarlierRequest:
    """Take the key for this request, or return the request that has taken it.

    The same request has it anew where it was cut off and has done nothing.
    """
    old = tx.now - KEEP_SECONDS * _SECOND
    tx.sql.execute(delete(tables.stored_response).where(_OF.claimed_at < old))
    query = select(tables.stored_response).where(_OF.key == key).with_for_update()
    row = None
    # Whoever has it may give it back between the two, on PostgreSQL: then it is free.
    while row is None:
        if tx.insert_once(
            tables.stored_response, key=key, request_digest=request, claimed_at=tx.now
        ):
            return Claim(key, tx.now)
        row = tx.sql.execute(query).one_or_none()
    left = row.response is None and row.claimed_at < tx.now - LEASE_SECONDS * _SECOND
    if left and row.first_entry is None and row.request_digest == request:
        tx.sql.execute(
            update(tables.stored_response).where(_OF.key == key).values(claimed_at=tx.now)
        )
        return Claim(key, tx.now)
    answer = StoredResponse(**json.loads(row.response)) if row.response else None
    return EarlierRequest(row.request_digest, answer, row.first_entry, left)


@contextmanager
def bound_to_claim(claim: Claim) -> Generator[None]:
    """Let whatever is written in the block be known as what the request with this key did."""
    before = _CLAIM.set(claim)
    try:
        yield
    finally:
        _CLAIM.reset(before)


def bind_entry(tx: Transaction, entry: int) -> None:
    """Note what the request that writes this entry has done, if it has a key.

    Raises StoreUnavailable where it took so long that the same request has the key anew.
    """
    claim = _CLAIM.get()
    if claim is None or not tx.first(("borne by", claim.key)):
        return
    known = {"first_entry": func.coalesce(_OF.first_entry, entry)}
    if tx.sql.execute(_mine(claim).values(known).returning(_OF.key)).one_or_none() is None:
        raise StoreUnavailable("the same request was made again and is at work: nothing was done")


def store_response(tx: Transaction, claim: Claim, answer: StoredResponse) -> None:
    """Keep what was answered."""
    told = json.dumps(vars(answer), ensure_ascii=False)
    tx.sql.execute(_mine(claim).values(response=told))


def release_key(tx: Transaction, claim: Claim) -> None:
    """Give the key back where nothing was done: the same request may be made anew."""
    mine = (_OF.key == claim.key) & (_OF.claimed_at == claim.at) & _OF.first_entry.is_(None)
    tx.sql.execute(delete(tables.stored_response).where(mine))


def _mine(claim: Claim) -> Update:
    return update(tables.stored_response).where(_OF.key == claim.key, _OF.claimed_at == claim.at)
