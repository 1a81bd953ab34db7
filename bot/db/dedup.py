"""What was seen already: requests that must have one effect however often they arrive."""

from collections.abc import Sequence

from sqlalchemy import delete

from bot.db import tables
from bot.db.database import Transaction

# Bolt takes timestamps up to five minutes old or early: ten minutes in all, and some to spare.
KEEP_SECONDS = 15 * 60


def remember_first(tx: Transaction, key: str) -> bool:
    """Return whether *key* is new, and remember it."""
    return tx.insert_once(tables.seen_request, key=key, seen_at=tx.now)


def remember_first_of(tx: Transaction, keys: Sequence[str]) -> set[str]:
    """Return which of the keys are new, and remember all of them: by one statement."""
    if not keys:
        return set()
    remember = (
        tx.insert_into(tables.seen_request)
        .on_conflict_do_nothing()
        .returning(tables.seen_request.c.key)
    )
    rows = [{"key": key, "seen_at": tx.now} for key in keys]
    return set(tx.sql.execute(remember, rows).scalars())


def forget_key(tx: Transaction, key: str) -> None:
    """Take *key* for new the next time: what it stood for has not happened."""
    tx.sql.execute(delete(tables.seen_request).where(tables.seen_request.c.key == key))


def delete_old_keys(tx: Transaction) -> None:
    horizon = tx.now - KEEP_SECONDS * 1_000_000
    tx.sql.execute(delete(tables.seen_request).where(tables.seen_request.c.seen_at < horizon))
