"""Leases: which worker has a run in hand, until when, and how often it changed hands.

Time is the database's, so that no worker's clock decides. The fence grows with every change of
hands: who holds an older one has lost the run, whatever it believes.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import bindparam, select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.db.tables import lease
from bot.model.run import State

_OF = select(lease).where(lease.c.run == bindparam("of"))
_RENEW = (
    update(lease)
    .where(
        lease.c.worker == bindparam("mine"),
        lease.c.run == bindparam("of"),
        lease.c.fence == bindparam("held"),
    )
    .values(expires_at=bindparam("until"))
)


@dataclass(frozen=True)
class Lease:
    """One run in somebody's hands. until: microseconds since 1970, UTC."""

    run: int
    fence: int
    worker: str
    expires_at: int


def get_lease(tx: Transaction, run: int) -> Lease | None:
    """Return who has it, or had it last; None if nobody ever had."""
    row = tx.sql.execute(_OF, {"of": run}).first()
    return Lease(row.run, row.fence, row.worker, row.expires_at) if row else None


def take_lease(tx: Transaction, run: int, worker: str, *, seconds: float) -> Lease:
    """Put the run into a worker's hands, whoever had it: the caller has held the run."""
    until = tx.now + round(seconds * 1_000_000)
    taken = Lease(run, 1, worker, until)
    if tx.insert_once(lease, **vars(taken)):
        return taken
    before = get_lease(tx, run)
    taken = Lease(run, before.fence + 1 if before else 1, worker, until)
    tx.sql.execute(update(lease).where(lease.c.run == run).values(**vars(taken)))
    return taken


def revoke_lease(tx: Transaction, run: int) -> None:
    """Take the run out of anybody's hands: what they still do with it is refused."""
    tx.sql.execute(
        update(lease)
        .where(lease.c.run == run)
        .values(fence=lease.c.fence + 1, worker="", expires_at=tx.now)
    )


def renew_leases(
    tx: Transaction, worker: str, fences: Collection[tuple[int, int]], *, seconds: float
) -> set[tuple[int, int]]:
    """Prolong those that the worker still has, and return them. fences: of runs, each with it."""
    until = tx.now + round(seconds * 1_000_000)
    query = (
        update(lease)
        .where(lease.c.worker == worker, lease.c.run.in_([run for run, _ in fences]))
        .values(expires_at=until)
        .returning(lease.c.run, lease.c.fence)
    )
    return {(row.run, row.fence) for row in tx.sql.execute(query)} & set(fences)


def renew_lease(tx: Transaction, worker: str, run: int, fence: int, *, seconds: float) -> bool:
    """Prolong one; False if the worker does not have it any more."""
    until = tx.now + round(seconds * 1_000_000)
    return (
        tx.sql.execute(_RENEW, {"mine": worker, "of": run, "held": fence, "until": until}).rowcount
        == 1
    )


def end_leases(tx: Transaction, worker: str, fences: Collection[tuple[int, int]]) -> None:
    """Give up what the worker has, so that others need not wait for the end of its time."""
    tx.sql.execute(
        update(lease)
        .where(lease.c.worker == worker, lease.c.run.in_([run for run, _ in fences]))
        .values(expires_at=tx.now)
    )


def list_lapsed(tx: Transaction) -> set[tuple[int, int]]:
    """Return the runs under way whose worker has not been heard of, each with its fence."""
    under_way = [State.STARTING.value, State.RUNNING.value]
    query = select(lease.c.run, lease.c.fence).where(
        lease.c.expires_at <= tx.now,
        lease.c.run == tables.run.c.id,
        tables.run.c.state.in_(under_way),
    )
    return {(row.run, row.fence) for row in tx.sql.execute(query)}


def list_workers(tx: Transaction) -> list[str]:
    """Return who has runs in their hands now."""
    busy = select(lease.c.worker).where(lease.c.worker != "", lease.c.expires_at > tx.now)
    return sorted(set(tx.sql.execute(busy).scalars()))
