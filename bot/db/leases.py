"""Leases: which worker holds a run, and until when.

Times are the database's, so that no worker's clock decides. The fencing token grows whenever the
lease changes hands: a worker with an older token has lost the run.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.db.tables import lease
from bot.model.run import State
from bot.model.times import SECOND

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
    """The lease of one run. expires_at: microseconds since 1970, UTC."""

    run: int
    fence: int
    worker: str
    expires_at: int


def get_lease(tx: Transaction, run: int) -> Lease | None:
    """Return the current or last lease of a run; None if no worker held it, or it has ended."""
    row = tx.sql.execute(_OF, {"of": run}).first()
    return Lease(*row) if row else None


def take_lease(tx: Transaction, run: int, worker: str, *, seconds: float) -> Lease:
    """Give the lease to a worker even if another holds it. The caller has locked the run."""
    until = tx.now + round(seconds * SECOND)
    taken = Lease(run, 1, worker, until)
    if tx.insert_once(lease, **vars(taken)):
        return taken
    before = get_lease(tx, run)
    taken = Lease(run, before.fence + 1 if before else 1, worker, until)
    tx.sql.execute(update(lease).where(lease.c.run == run).values(**vars(taken)))
    return taken


def revoke_lease(tx: Transaction, run: int) -> None:
    """Revoke the lease: further writes by its holder are refused."""
    tx.sql.execute(
        update(lease)
        .where(lease.c.run == run)
        .values(fence=lease.c.fence + 1, worker="", expires_at=tx.now)
    )


def renew_leases(
    tx: Transaction, worker: str, fences: Collection[tuple[int, int]], *, seconds: float
) -> set[tuple[int, int]]:
    """Renew the leases that the worker still holds, and return them as (run, fence)."""
    until = tx.now + round(seconds * SECOND)
    query = (
        update(lease)
        .where(lease.c.worker == worker, lease.c.run.in_([run for run, _ in fences]))
        .values(expires_at=until)
        .returning(lease.c.run, lease.c.fence)
    )
    return {(row.run, row.fence) for row in tx.sql.execute(query)} & set(fences)


def renew_lease(tx: Transaction, worker: str, run: int, fence: int, *, seconds: float) -> bool:
    """Renew one lease; False if the worker no longer holds it."""
    until = tx.now + round(seconds * SECOND)
    return (
        tx.sql.execute(_RENEW, {"mine": worker, "of": run, "held": fence, "until": until}).rowcount
        == 1
    )


def end_leases(tx: Transaction, worker: str, fences: Collection[tuple[int, int]]) -> None:
    """End the worker's leases, so that other workers need not wait for them to expire."""
    tx.sql.execute(
        update(lease)
        .where(lease.c.worker == worker, lease.c.run.in_([run for run, _ in fences]))
        .values(expires_at=tx.now)
    )


def delete_leases(tx: Transaction, runs: Collection[int]) -> None:
    """Delete the leases of runs that have ended: no worker may continue them."""
    if runs:
        tx.sql.execute(delete(lease).where(lease.c.run.in_(runs)))


def list_expired(tx: Transaction) -> set[tuple[int, int]]:
    """Return the active runs whose lease has expired, each with its fencing token."""
    under_way = [State.STARTING.value, State.RUNNING.value]
    query = select(lease.c.run, lease.c.fence).where(
        lease.c.expires_at <= tx.now,
        lease.c.run == tables.run.c.id,
        tables.run.c.state.in_(under_way),
    )
    return {(row.run, row.fence) for row in tx.sql.execute(query)}


def list_workers(tx: Transaction) -> list[str]:
    """Return the workers that hold leases now."""
    busy = select(lease.c.worker).where(lease.c.worker != "", lease.c.expires_at > tx.now)
    return sorted(set(tx.sql.execute(busy).scalars()))
