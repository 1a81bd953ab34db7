"""Host locks: one change at a time per host, held across crashes until the change ends."""

from dataclasses import dataclass

from sqlalchemy import bindparam, delete, select

from bot.db import priority, runs, tables, view_conditions
from bot.db.database import Transaction
from bot.model.run import Run, State

_RELEASE = delete(tables.host_lock).where(tables.host_lock.c.run == bindparam("holder"))


@dataclass(frozen=True)
class Lock:
    """The run that holds a host. since: microseconds."""

    target: str
    run: int
    since: int


def take_lock(tx: Transaction, target: str, run: int) -> Lock | None:
    """Take the lock for *run* and return None, or return the lock of another run."""
    while not tx.insert_once(tables.host_lock, host=target, run=run, since=tx.now):
        holder = get_lock(tx, target)
        if holder is not None:
            return None if holder.run == run else holder
        # It was released between the two statements: try again.
    return None


def get_lock(tx: Transaction, target: str) -> Lock | None:
    row = tx.sql.execute(
        select(tables.host_lock).where(tables.host_lock.c.host == target)
    ).one_or_none()
    if row is None or not view_conditions.list_viewable(tx, [row.run]):
        return None
    return Lock(*row)


def list_locks(tx: Transaction) -> list[Lock]:
    """Return all locks, the oldest first."""
    query = select(tables.host_lock).order_by(tables.host_lock.c.since)
    found = [Lock(*row) for row in tx.sql.execute(query)]
    seen = view_conditions.list_viewable(tx, [lock.run for lock in found])
    return [lock for lock in found if lock.run in seen]


def list_queues(tx: Transaction) -> dict[str, list[Run]]:
    """Return the queued runs by host, in their order, without their plans."""
    run = tables.run.c
    query = select(run.id).where(run.state == State.QUEUED.value, run.hosts == "[]")
    numbers = list(tx.sql.execute(query).scalars())
    known = {waiting.id: waiting for waiting in runs.list_runs(tx, numbers)}
    found: dict[str, list[Run]] = {}
    for number in priority.order_runs(tx, numbers):
        if number not in known:
            continue
        found.setdefault(known[number].host, []).append(known[number])
    return found


def release_locks(tx: Transaction, run: int) -> None:
    tx.sql.execute(_RELEASE, {"holder": run})


def get_next_run(tx: Transaction, target: str) -> Run | None:
    """Return the queued run that locks *target* next. Parent runs lock no host."""
    number = priority.get_next_run(tx, target)
    return runs.get_run(tx, number) if number is not None else None
