"""What was seen already: requests that must have one effect however often they arrive."""

from sqlalchemy import delete

from bot.store import tables
from bot.store.database import Transaction

# Bolt takes timestamps up to five minutes old or early: ten minutes in all, and some to spare.
KEEP_SECONDS = 15 * 60


def first_time(tx: Transaction, key: str) -> bool:
    """Return whether *key* is new, and remember it."""
    return tx.insert_once(tables.seen, key=key, at=tx.now)


def forget(tx: Transaction, key: str) -> None:
    """Take *key* for new the next time: what it stood for has not happened."""
    tx.sql.execute(delete(tables.seen).where(tables.seen.c.key == key))


def forget_old(tx: Transaction) -> None:
    horizon = tx.now - KEEP_SECONDS * 1_000_000
    tx.sql.execute(delete(tables.seen).where(tables.seen.c.at < horizon))
