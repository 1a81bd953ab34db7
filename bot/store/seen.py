"""What was seen already: requests that must have one effect however often they arrive."""

from collections.abc import Sequence

from sqlalchemy import delete
from sqlalchemy.dialects import postgresql, sqlite

from bot.store import tables
from bot.store.database import Transaction

# Bolt takes timestamps up to five minutes old or early: ten minutes in all, and some to spare.
KEEP_SECONDS = 15 * 60


def first_time(tx: Transaction, key: str) -> bool:
    """Return whether *key* is new, and remember it."""
    return tx.insert_once(tables.seen, key=key, at=tx.now)


def first_times(tx: Transaction, keys: Sequence[str]) -> set[str]:
    """Return which of the keys are new, and remember all of them: by one statement."""
    insert = postgresql.insert if tx.sql.dialect.name == "postgresql" else sqlite.insert
    statement = insert(tables.seen).on_conflict_do_nothing().returning(tables.seen.c.key)
    rows = [{"key": key, "at": tx.now} for key in keys]
    return set(tx.sql.execute(statement, rows).scalars())


def forget(tx: Transaction, key: str) -> None:
    """Take *key* for new the next time: what it stood for has not happened."""
    tx.sql.execute(delete(tables.seen).where(tables.seen.c.key == key))


def forget_old(tx: Transaction) -> None:
    horizon = tx.now - KEEP_SECONDS * 1_000_000
    tx.sql.execute(delete(tables.seen).where(tables.seen.c.at < horizon))
