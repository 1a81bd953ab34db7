"""Webhook deliveries to subscriptions, created from the entries of the change log.

An entry is committed with the state that it records, so no event is lost.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, exists, func, insert, select, update

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.db import runs, tables
from bot.db.database import Database, Transaction
from bot.db.tables import delivery, subscription
from bot.model.run import Run

_SECOND = 1_000_000
_MAX_ENTRIES_READ = 200
# About one day: after 5 s, 10 s, 20 s, … and then every two hours.
MOST_TRIES = 22
_FIRST_SECONDS, _LONGEST_SECONDS = 5, 7200
_KEEP_FAILED = 30 * 86_400 * _SECOND
# Entries between two states of a run, which subscriptions do not receive by default.
QUIET = frozenset(
    {
        events.StepSending.kind,
        events.Claimed.kind,
        events.TokenUsed.kind,
        events.LoggingFailed.kind,
        events.StepSucceeded.kind,
        events.Reminded.kind,
    }
)


@dataclass(frozen=True)
class PendingDelivery:
    """A log entry to send to a subscription."""

    subscription: str
    seq: int
    """Number of the log entry."""
    run: int
    kind: str
    """Kind of the log entry."""
    at: int
    """Time of the log entry, in microseconds since 1970."""
    tries: int
    """Failed attempts so far."""


@dataclass(frozen=True)
class SubscriptionFilter:
    """The runs and log entries that a subscription receives."""

    kinds: Collection[str]
    """Kinds of runs."""
    areas: frozenset[str]
    """Empty for all."""
    kinds_of_entry: Collection[str]
    """Empty for all but QUIET ones."""
    with_ticket: bool = False
    """Only requests that name a change ticket and have started."""

    def accepts_entry(self, entry: Entry) -> bool:
        if entry.run is None:
            return False
        wanted = self.kinds_of_entry
        return entry.kind in wanted if wanted else entry.kind not in QUIET

    def accepts_run(self, run: Run) -> bool:
        """Return whether kind and areas match; a check on several areas must match in each."""
        if self.with_ticket and not (run.ticket and run.started_at and run.parent is None):
            return False
        return run.kind in self.kinds and (not self.areas or self.areas.issuperset(run.areas))


def is_behind(tx: Transaction, name: str) -> bool:
    """Return whether the log has entries that the subscription has not read."""
    read = tx.sql.execute(select(subscription.c.seq).where(subscription.c.name == name)).scalar()
    return read is None or read < change_log.get_head(tx)[0]


def read_new_entries(tx: Transaction, name: str, wanted: SubscriptionFilter) -> int:
    """Create deliveries from new log entries; return the number of the last entry read.

    A new subscription starts with the entries after now.
    """
    read, entries = _take_new_entries(tx, name)
    accepted = [entry for entry in entries if wanted.accepts_entry(entry)]
    numbers = sorted({entry.run for entry in accepted if entry.run is not None})
    known = {run.id: run for run in runs.list_runs(tx, numbers)}
    _insert_deliveries(
        tx,
        [
            (name, entry)
            for entry in accepted
            if entry.run in known and wanted.accepts_run(known[entry.run])
        ],
    )
    return read


def read_new_notices(
    tx: Transaction, prefix: str, list_recipients: Callable[[Entry], Sequence[str]]
) -> None:
    """Create a delivery from each new log entry for each of the people whom it concerns.

    prefix: of the subscription of each person, before the id.
    """
    _, entries = _take_new_entries(tx, prefix)
    _insert_deliveries(
        tx, [(f"{prefix}{one}", entry) for entry in entries for one in list_recipients(entry)]
    )


def _take_new_entries(tx: Transaction, name: str) -> tuple[int, Sequence[Entry]]:
    """Return the number of the last entry that a subscription has read by now, and new ones."""
    head = change_log.get_head(tx)[0]
    if tx.insert_once(subscription, name=name, seq=head):
        return head, ()
    row = select(subscription.c.seq).where(subscription.c.name == name).with_for_update()
    read = tx.sql.execute(row).scalar_one()
    column = tables.entry.c
    query = (
        select(*tables.ENTRY_MEMBERS)
        .where(column.seq > read)
        .order_by(column.seq)
        .limit(_MAX_ENTRIES_READ)
    )
    entries = [Entry(*found) for found in tx.sql.execute(query)]
    if entries:
        read = entries[-1].seq
        tx.sql.execute(update(subscription).where(subscription.c.name == name).values(seq=read))
    return read, entries


def _insert_deliveries(tx: Transaction, items: Sequence[tuple[str, Entry]]) -> None:
    rows = [
        {
            "subscription": name,
            "seq": entry.seq,
            "run": entry.run or 0,
            "kind": entry.kind,
            "occurred_at": entry.at,
            "attempts": 0,
            "next_attempt_at": 0,
            "error": "",
        }
        for name, entry in items
    ]
    if rows:
        tx.sql.execute(insert(delivery), rows)


def list_due_notices(tx: Transaction, prefix: str) -> Sequence[PendingDelivery]:
    """Return the deliveries to people that are due, the oldest first."""
    column = delivery.c
    query = select(delivery).where(
        column.subscription.startswith(prefix, autoescape=True),
        column.failed_at.is_(None),
        column.next_attempt_at <= tx.now,
    )
    return [_build_pending(row) for row in tx.sql.execute(query.order_by(column.seq).limit(20))]


def list_due_deliveries(
    tx: Transaction, name: str, *, most: int = 20
) -> Sequence[PendingDelivery]:
    """Return deliveries that are due: of each run, the oldest that has not failed for good."""
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
    return [_build_pending(row) for row in found]


def _build_pending(row: Any) -> PendingDelivery:
    return PendingDelivery(
        row.subscription, row.seq, row.run, row.kind, row.occurred_at, row.attempts
    )


def claim_delivery(tx: Transaction, item: PendingDelivery, *, seconds: float) -> bool:
    """Claim a delivery for *seconds*; return False if another process has claimed it."""
    claimed = tx.sql.execute(
        update(delivery)
        .where(
            _matches(item), delivery.c.failed_at.is_(None), delivery.c.next_attempt_at <= tx.now
        )
        .values(next_attempt_at=tx.now + round(seconds * _SECOND))
    )
    return claimed.rowcount == 1


def release_all(tx: Transaction, *, seconds: float) -> None:
    """Release deliveries that were claimed for at most *seconds*, by a process that ended."""
    soon = tx.now + round(seconds * _SECOND)
    tx.sql.execute(
        update(delivery)
        .where(delivery.c.failed_at.is_(None), delivery.c.next_attempt_at <= soon)
        .values(next_attempt_at=0)
    )


def mark_delivered(tx: Transaction, item: PendingDelivery) -> None:
    tx.sql.execute(delete(delivery).where(_matches(item)))


def mark_failed(
    tx: Transaction, item: PendingDelivery, why: str, *, for_good: bool = False
) -> None:
    """Schedule the next attempt, each after twice as long; mark as failed after the last one."""
    tries = item.tries + 1
    wait = min(_FIRST_SECONDS * 2**item.tries, _LONGEST_SECONDS)
    over = for_good or tries >= MOST_TRIES
    tx.sql.execute(
        update(delivery)
        .where(_matches(item))
        .values(
            attempts=tries,
            next_attempt_at=tx.now + wait * _SECOND,
            failed_at=tx.now if over else None,
            error=why[:300],
        )
    )


def count_deliveries(tx: Transaction) -> Mapping[str, tuple[int, int]]:
    """Return the numbers of pending and failed deliveries by subscription."""
    column = delivery.c
    rows = tx.sql.execute(
        select(column.subscription, func.count(), func.count(column.failed_at)).group_by(
            column.subscription
        )
    )
    return {name: (total - failed, failed) for name, total, failed in rows}


def retry_failed(tx: Transaction, name: str) -> int:
    """Retry failed deliveries; return their number."""
    column = delivery.c
    return tx.sql.execute(
        update(delivery)
        .where(column.subscription == name, column.failed_at.is_not(None))
        .values(failed_at=None, attempts=0, next_attempt_at=0)
    ).rowcount


def delete_old_failures(tx: Transaction) -> None:
    """Delete deliveries that failed more than 30 days ago."""
    tx.sql.execute(delete(delivery).where(delivery.c.failed_at < tx.now - _KEEP_FAILED))


def _matches(item: PendingDelivery):
    return (delivery.c.subscription == item.subscription) & (delivery.c.seq == item.seq)


def describe_deliveries(database: Database) -> str:
    """Return the numbers of pending and failed deliveries, for the public readiness page.

    It names no subscription: everyone who reaches the service can read that page.
    """
    with database.reading() as tx:
        counts = count_deliveries(tx).values()
    pending, failed = sum(one for one, _ in counts), sum(one for _, one in counts)
    if not pending and not failed:
        return "all delivered"
    return f"{pending} pending" + (f", {failed} failed: run `keyturn webhooks`" if failed else "")
