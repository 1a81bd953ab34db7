"""Locks: one change at a time per target, held across crashes until the change is over."""

from dataclasses import dataclass

from sqlalchemy import bindparam, delete, select

from bot.run import Run, State
from bot.store import runs, sights, tables, turns
from bot.store.database import Transaction
from bot.store.rote import Rote

_RELEASE = Rote(delete(tables.target_lock).where(tables.target_lock.c.run == bindparam("holder")))


@dataclass(frozen=True)
class Lock:
    """Who holds a target. since: microseconds."""

    target: str
    run: int
    since: int


def take(tx: Transaction, target: str, run: int) -> Lock | None:
    """Take the lock for *run* and return None, or return the lock that stands in the way."""
    while not tx.insert_once(tables.target_lock, target=target, run=run, since=tx.now):
        holder = held(tx, target)
        if holder is not None:
            return None if holder.run == run else holder
        # It was given up between the two questions: nobody has it until it is taken.
    return None


def held(tx: Transaction, target: str) -> Lock | None:
    row = tx.sql.execute(
        select(tables.target_lock).where(tables.target_lock.c.target == target)
    ).one_or_none()
    if row is None or not sights.visible(tx, [row.run]):
        return None
    return Lock(row.target, row.run, row.since)


def every(tx: Transaction) -> list[Lock]:
    """Return what is held now, the longest held first."""
    query = select(tables.target_lock).order_by(tables.target_lock.c.since)
    found = [Lock(row.target, row.run, row.since) for row in tx.sql.execute(query)]
    seen = sights.visible(tx, [lock.run for lock in found])
    return [lock for lock in found if lock.run in seen]


def lines(tx: Transaction) -> dict[str, list[Run]]:
    """Return the runs that wait for their turn, by host, in their order; without their plans."""
    run = tables.run.c
    query = select(run.id).where(run.state == State.READY.value, run.hosts == "[]")
    numbers = list(tx.sql.execute(query).scalars())
    known = {waiting.id: waiting for waiting in runs.listed(tx, numbers)}
    found: dict[str, list[Run]] = {}
    for number in turns.in_order(tx, numbers):
        if number not in known:
            continue
        found.setdefault(known[number].host, []).append(known[number])
    return found


def release(tx: Transaction, run: int) -> None:
    _RELEASE.tell(tx, holder=run)


def next_in_line(tx: Transaction, target: str) -> Run | None:
    """Return the run that is to have *target* next, among those ready to start; see `turns`.

    A request for several hosts is not in line: its parts are.
    """
    number = turns.next_at(tx, target)
    return runs.get(tx, number) if number is not None else None
