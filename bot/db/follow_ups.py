"""Follow-ups: work that continues on a host after its run, and when to check it next."""

from dataclasses import dataclass

from sqlalchemy import delete, select, update

from bot.db import tables
from bot.db.database import Transaction


@dataclass(frozen=True)
class FollowUp:
    """since, next_at: microseconds since 1970, UTC. attempts: how often the work was checked."""

    run: int
    since: int
    next_at: int
    attempts: int


def add_follow_up(tx: Transaction, run: int, *, next_at: int) -> None:
    tx.insert_once(tables.follow_up, run=run, since=tx.now, next_at=next_at, attempts=0)


def list_due_follow_ups(tx: Transaction, *, most: int = 50) -> list[FollowUp]:
    """Return the follow-ups that are due, the longest overdue first."""
    query = select(tables.follow_up).where(tables.follow_up.c.next_at <= tx.now)
    rows = tx.sql.execute(query.order_by(tables.follow_up.c.next_at).limit(most))
    return [FollowUp(*row) for row in rows]


def claim_follow_up(tx: Transaction, follow_up: FollowUp, *, next_at: int) -> bool:
    """Claim the next check; False if another worker claimed it."""
    claimed = tx.sql.execute(
        update(tables.follow_up)
        .where(
            tables.follow_up.c.run == follow_up.run,
            tables.follow_up.c.attempts == follow_up.attempts,
        )
        .values(next_at=next_at, attempts=follow_up.attempts + 1)
    )
    return claimed.rowcount == 1


def has_follow_up(tx: Transaction, run: int) -> bool:
    query = select(tables.follow_up.c.run).where(tables.follow_up.c.run == run)
    return tx.sql.execute(query).scalar_one_or_none() is not None


def end_follow_up(tx: Transaction, run: int) -> None:
    tx.sql.execute(delete(tables.follow_up).where(tables.follow_up.c.run == run))
