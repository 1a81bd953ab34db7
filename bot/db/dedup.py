"""Keys of requests and events that take effect once, however often they arrive."""

from collections.abc import Sequence

from sqlalchemy import delete

from bot.db import tables
from bot.db.database import Transaction
from bot.model.times import DAY, SECOND

# Bolt takes timestamps up to five minutes old or early: ten minutes in all, and some to spare.
KEEP_SECONDS = 15 * 60
_KEEP_EVENTS = 30 * DAY


def remember_first(tx: Transaction, key: str) -> bool:
    """Store *key*; return whether it is new."""
    return tx.insert_once(tables.seen_request, key=key, seen_at=tx.now)


def remember_first_of(tx: Transaction, keys: Sequence[str]) -> set[str]:
    """Store the keys by one statement; return those that are new."""
    if not keys:
        return set()
    remember = (
        tx.insert_into(tables.seen_request)
        .on_conflict_do_nothing()
        .returning(tables.seen_request.c.key)
    )
    rows = [{"key": key, "seen_at": tx.now} for key in keys]
    return set(tx.sql.execute(remember, rows).scalars())


def remember_event(tx: Transaction, source: str, key: str) -> bool:
    """Store the key that a source of webhooks gives an event; return whether it is new."""
    return tx.insert_once(tables.inbound_event, source=source, key=key, received_at=tx.now)


def forget_key(tx: Transaction, key: str) -> None:
    """Delete *key*, because its request did not take effect."""
    tx.sql.execute(delete(tables.seen_request).where(tables.seen_request.c.key == key))


def delete_old_keys(tx: Transaction) -> None:
    requests, received = tables.seen_request, tables.inbound_event
    horizon = tx.now - KEEP_SECONDS * SECOND
    tx.sql.execute(delete(requests).where(requests.c.seen_at < horizon))
    tx.sql.execute(delete(received).where(received.c.received_at < tx.now - _KEEP_EVENTS))
