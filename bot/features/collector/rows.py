"""How far the collector has received the change log: one row, held by one process at a time."""

from dataclasses import dataclass

from sqlalchemy import select, update

from bot.db.database import Transaction
from bot.db.tables import subscription
from bot.model.times import SECOND

# The names of webhooks have no colon.
_NAME = "collector:"
_IS_OURS = subscription.c.name == _NAME


@dataclass(frozen=True)
class Cursor:
    """What is known of the collector."""

    seq: int
    """The last entry that it has accepted; 0 at the beginning."""
    error: str
    """Why it did not accept the next ones at the last attempt."""


def get_cursor(tx: Transaction) -> Cursor:
    row = tx.sql.execute(select(subscription).where(_IS_OURS)).first()
    return Cursor(row.seq, row.error) if row else Cursor(0, "")


def claim_cursor(tx: Transaction, *, seconds: float) -> Cursor | None:
    """Hold the cursor for so long, and return it. None if another process holds it, or waits."""
    tx.insert_once(subscription, name=_NAME, seq=0)
    claimed = tx.sql.execute(
        update(subscription)
        .where(_IS_OURS, subscription.c.next_attempt_at <= tx.now)
        .values(next_attempt_at=_compute_time(tx, seconds))
    )
    return get_cursor(tx) if claimed.rowcount else None


def advance_cursor(tx: Transaction, *, before: int, seq: int) -> None:
    """Record that the entries up to this one are accepted, and release the cursor."""
    tx.sql.execute(
        update(subscription)
        .where(_IS_OURS, subscription.c.seq == before)
        .values(seq=seq, error="", next_attempt_at=0)
    )


def release_cursor(tx: Transaction, *, error: str, seconds: float) -> None:
    """Let the next attempt be made after so many seconds, by any process."""
    tx.sql.execute(
        update(subscription)
        .where(_IS_OURS)
        .values(error=error[:300], next_attempt_at=_compute_time(tx, seconds))
    )


def _compute_time(tx: Transaction, seconds: float) -> int:
    return tx.now + round(seconds * SECOND)
