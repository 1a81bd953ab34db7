"""Rows of the redundancy guard: how events were at their last check, and which runs claim legs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, select, update

from bot.db import tables
from bot.db.database import Transaction


@dataclass(frozen=True)
class EventReading:
    """How one event of a tree was when its check last ran. Times in microseconds."""

    tree: str
    event: str
    state: str
    """stands, failed, finding or unknown."""
    since_at: int
    """When it came into this state."""
    read_at: int
    run: int | None
    """The run of the check; None where Keyturn ran it by itself."""
    detail: str


@dataclass(frozen=True)
class LegClaim:
    """A run that may bring an event about, until the event's check says that it is over."""

    tree: str
    event: str
    run: int
    claimed_at: int


def lock_trees(tx: Transaction, names: Sequence[str]) -> None:
    """Let no other transaction decide on these trees until this one ends."""
    # In one order, so that two that want several of them do not wait for each other.
    for name in sorted(set(names)):
        tx.insert_once(tables.tree_lock, tree=name, version=0)
        row = tables.tree_lock.c
        tx.sql.execute(
            update(tables.tree_lock).where(row.tree == name).values(version=row.version + 1)
        )


def list_readings(tx: Transaction, tree: str) -> Mapping[str, EventReading]:
    """Return the last reading of each event of a tree, by event."""
    query = select(tables.event_reading).where(tables.event_reading.c.tree == tree)
    return {row.event: EventReading(*row) for row in tx.sql.execute(query)}


def store_reading(
    tx: Transaction, tree: str, event: str, *, state: str, run: int | None, detail: str
) -> None:
    """Store what a check returned. `since_at` stays while the state does."""
    before = list_readings(tx, tree).get(event)
    values = {
        "state": state,
        "since_at": before.since_at if before and before.state == state else tx.now,
        "read_at": tx.now,
        "run": run,
        "detail": tx.redactor.redact_for_storage(detail)[:300],
    }
    row = tables.event_reading
    if not tx.insert_once(row, tree=tree, event=event, **values):
        key = (row.c.tree == tree, row.c.event == event)
        tx.sql.execute(update(row).where(*key).values(**values))


def list_claims(tx: Transaction, tree: str = "") -> list[LegClaim]:
    """Return the claims on a tree's events, or all claims, the oldest first."""
    query = select(tables.leg_claim).order_by(tables.leg_claim.c.claimed_at)
    if tree:
        query = query.where(tables.leg_claim.c.tree == tree)
    return [LegClaim(*row) for row in tx.sql.execute(query)]


def add_claim(tx: Transaction, tree: str, event: str, run: int) -> None:
    tx.insert_once(tables.leg_claim, tree=tree, event=event, run=run, claimed_at=tx.now)


def delete_claim(tx: Transaction, claim: LegClaim) -> bool:
    """Delete a claim; False if another transaction has."""
    row = tables.leg_claim.c
    key = (row.tree == claim.tree, row.event == claim.event, row.run == claim.run)
    deleted = tx.sql.execute(delete(tables.leg_claim).where(*key).returning(row.run))
    return deleted.first() is not None
