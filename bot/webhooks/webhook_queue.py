"""Deliveries: what subscriptions are still to be told of runs, taken from the change log itself.

The log is committed with the state that it tells of, so nothing that happened can be left untold.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, exists, func, insert, select, update

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db import runs, tables
from bot.db.database import Transaction
from bot.db.tables import delivery, subscription
from bot.model.run import Run

_SECOND = 1_000_000
_AT_ONCE = 200
# A day without an answer, more or less: after 5 s, 10 s, 20 s, … and then every two hours.
MOST_TRIES = 22
_FIRST_SECONDS, _LONGEST_SECONDS = 5, 7200
_KEEP_DEAD = 30 * 86_400 * _SECOND
# What happens within a run on its way from one state to the next, and is told by neither.
QUIET = frozenset(
    {"step sending", "claimed", "token used", "logging failed", "step succeeded", "reminded"}
)


@dataclass(frozen=True)
class PendingDelivery:
    """One thing to tell. seq, kind, at: of the log's entry; at: microseconds. tries: so far."""

    subscription: str
    seq: int
    run: int
    kind: str
    at: int
    tries: int


@dataclass(frozen=True)
class SubscriptionFilter:
    """What a subscription is told of. areas, kinds_of_entry: empty for all."""

    kinds: Collection[str]
    areas: frozenset[str]
    kinds_of_entry: Collection[str]

    def entry(self, entry: Entry) -> bool:
        if entry.run is None:
            return False
        wanted = self.kinds_of_entry
        return entry.kind in wanted if wanted else entry.kind not in QUIET

    def run(self, run: Run) -> bool:
        """Of a check on hosts of several areas, all of them must be wanted: it tells of each."""
        return run.kind in self.kinds and (not self.areas or self.areas.issuperset(run.areas))


def is_behind(tx: Transaction, name: str) -> bool:
    """Say whether the log has entries that the subscription has not read."""
    read = tx.sql.execute(select(subscription.c.seq).where(subscription.c.name == name)).scalar()
    return read is None or read < change_log.get_head(tx)[0]


def read_new_entries(tx: Transaction, name: str, wanted: SubscriptionFilter) -> int:
    """Read on in the log and note what is to be told; return how far that is.

    A subscription that is new begins with what happens from now on.
    """
    head = change_log.get_head(tx)[0]
    if tx.insert_once(subscription, name=name, seq=head):
        return head
    row = select(subscription.c.seq).where(subscription.c.name == name).with_for_update()
    read = tx.sql.execute(row).scalar_one()
    column = tables.entry.c
    query = select(tables.entry).where(column.seq > read).order_by(column.seq).limit(_AT_ONCE)
    entries = [Entry(*found) for found in tx.sql.execute(query)]
    told = [entry for entry in entries if wanted.entry(entry)]
    numbers = sorted({entry.run for entry in told if entry.run is not None})
    known = {run.id: run for run in runs.list_runs(tx, numbers)}
    rows = [
        {
            "subscription": name,
            "seq": entry.seq,
            "run": entry.run,
            "kind": entry.kind,
            "occurred_at": entry.at,
            "attempts": 0,
            "next_attempt_at": 0,
            "error": "",
        }
        for entry in told
        if entry.run in known and wanted.run(known[entry.run])
    ]
    if rows:
        tx.sql.execute(insert(delivery), rows)
    if entries:
        read = entries[-1].seq
        tx.sql.execute(update(subscription).where(subscription.c.name == name).values(seq=read))
    return read


def list_due_deliveries(
    tx: Transaction, name: str, *, most: int = 20
) -> Sequence[PendingDelivery]:
    """Return what can be told now: of each run, the oldest that is neither told nor given up."""
    column, earlier = delivery.c, delivery.alias()
    before = exists().where(
        earlier.c.subscription == column.subscription,
        earlier.c.run == column.run,
        earlier.c.failed_at.is_(None),
        earlier.c.seq < column.seq,
    )
    query = select(delivery).where(
        column.subscription == name,
        column.failed_at.is_(None),
        column.next_attempt_at <= tx.now,
        ~before,
    )
    found = tx.sql.execute(query.order_by(column.seq).limit(most))
    return [
        PendingDelivery(r.subscription, r.seq, r.run, r.kind, r.occurred_at, r.attempts)
        for r in found
    ]


def claim_delivery(tx: Transaction, item: PendingDelivery, *, seconds: float) -> bool:
    """Keep others from telling it for so long; False if somebody else is at it already."""
    claimed = tx.sql.execute(
        update(delivery)
        .where(_is(item), delivery.c.failed_at.is_(None), delivery.c.next_attempt_at <= tx.now)
        .values(next_attempt_at=tx.now + round(seconds * _SECOND))
    )
    return claimed.rowcount == 1


def release_all(tx: Transaction, *, seconds: float) -> None:
    """Have told at once what was claimed for at most so long: whoever did is dead."""
    soon = tx.now + round(seconds * _SECOND)
    tx.sql.execute(
        update(delivery)
        .where(delivery.c.failed_at.is_(None), delivery.c.next_attempt_at <= soon)
        .values(next_attempt_at=0)
    )


def mark_delivered(tx: Transaction, item: PendingDelivery) -> None:
    tx.sql.execute(delete(delivery).where(_is(item)))


def mark_failed(
    tx: Transaction, item: PendingDelivery, why: str, *, for_good: bool = False
) -> None:
    """Try again later, each time after twice as long; after the last try it is given up."""
    tries = item.tries + 1
    wait = min(_FIRST_SECONDS * 2**item.tries, _LONGEST_SECONDS)
    over = for_good or tries >= MOST_TRIES
    tx.sql.execute(
        update(delivery)
        .where(_is(item))
        .values(
            attempts=tries,
            next_attempt_at=tx.now + wait * _SECOND,
            failed_at=tx.now if over else None,
            error=why[:300],
        )
    )


def count_deliveries(tx: Transaction) -> Mapping[str, tuple[int, int]]:
    """Return how many wait and how many were given up, by the subscription."""
    column = delivery.c
    rows = tx.sql.execute(
        select(column.subscription, func.count(), func.count(column.failed_at)).group_by(
            column.subscription
        )
    )
    return {name: (every - dead, dead) for name, every, dead in rows}


def retry_failed(tx: Transaction, name: str) -> int:
    """Take up what was given up; return how much that is."""
    column = delivery.c
    return tx.sql.execute(
        update(delivery)
        .where(column.subscription == name, column.failed_at.is_not(None))
        .values(failed_at=None, attempts=0, next_attempt_at=0)
    ).rowcount


def delete_old_failures(tx: Transaction) -> None:
    """Forget what was given up so long ago that nobody will have it told."""
    tx.sql.execute(delete(delivery).where(delivery.c.failed_at < tx.now - _KEEP_DEAD))


def _is(item: PendingDelivery):
    return (delivery.c.subscription == item.subscription) & (delivery.c.seq == item.seq)
