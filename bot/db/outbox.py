"""The outbox: runs whose notifications are not delivered yet, and the messages posted for them.

A row is written in the transaction that changes the run, holds no text, and is deleted when the
message is delivered. The sender renders the run as it is at delivery, so that a late message never
overwrites a newer one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, Update, delete, exists, select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.model.times import DAY, SECOND

# The slot of a card that several runs share.
SHARED_CARD = "shared"
_IS_URGENT = exists().where(
    tables.break_glass.c.run == tables.outbox.c.run,
    tables.break_glass.c.activated_at.is_not(None),
)
_NEXT_REVISION = {"revision": tables.outbox.c.revision + 1}
_RELEASED = {"attempts": 0, "next_attempt_at": 0, "sender": "", "error": ""}
RATE_LIMIT_ERRORS = ("ratelimited", "status 429")
# Without chat, no one delivers them.
_KEEP = 30 * DAY


@dataclass(frozen=True)
class PendingRunUpdate:
    """A run with a notification to deliver. revision: the revision that the delivery covers.

    attempts: including those of senders that died, whose message may have been posted.
    """

    run: int
    revision: int
    attempts: int


@dataclass(frozen=True)
class PostedMessage:
    """A Slack message that is kept up to date. digest: of its content."""

    run: int
    slot: str
    channel: str
    ts: str
    digest: str


def announce_run(tx: Transaction, run: int) -> None:
    """Request a notification about *run*. Several before a delivery become one."""
    tx.after_commit(tx.wake_outbox)
    announce = tx.insert_into(tables.outbox).on_conflict_do_update(
        index_elements=["run"], set_=_NEXT_REVISION
    )
    # No revision occurs twice, even after the row was deleted.
    tx.sql.execute(announce, {"run": run, "revision": tx.now, **_RELEASED})


def list_pending_updates(tx: Transaction, *, most: int = 100) -> list[PendingRunUpdate]:
    """Return the pending updates: first those of urgent runs, then by their numbers."""
    return [_build_update(row) for row in tx.sql.execute(_select_pending(tx, most))]


def _build_update(row: Row[Any]) -> PendingRunUpdate:
    return PendingRunUpdate(row.run, row.revision, row.attempts + bool(row.sender))


def _select_pending(tx: Transaction, most: int) -> Select[Any]:
    return (
        select(tables.outbox)
        .where(tables.outbox.c.next_attempt_at <= tx.now)
        .order_by(_IS_URGENT.desc(), tables.outbox.c.run)
        .limit(most)
    )


def lock_pending_updates(tx: Transaction) -> list[PendingRunUpdate]:
    """Return the pending updates and lock their rows until this transaction ends."""
    query = _select_pending(tx, 100).with_for_update(skip_locked=True)
    return [_build_update(row) for row in tx.sql.execute(query)]


def claim_update(tx: Transaction, item: PendingRunUpdate, *, sender: str, seconds: float) -> bool:
    """Claim an update for so long; False if another sender has claimed it.

    sender: the process that delivers it, "" if the update only waits.
    """
    claimed = tx.sql.execute(
        update(tables.outbox)
        .where(tables.outbox.c.run == item.run, tables.outbox.c.next_attempt_at <= tx.now)
        .values(sender=sender, next_attempt_at=tx.now + round(seconds * SECOND))
    )
    return claimed.rowcount == 1


def renew_claim(tx: Transaction, item: PendingRunUpdate, *, sender: str, seconds: float) -> None:
    """Extend the claim, unless another sender has taken it over."""
    until = tx.now + round(seconds * SECOND)
    tx.sql.execute(_update_claimed(item, sender).values(next_attempt_at=until))


def mark_delivered(tx: Transaction, item: PendingRunUpdate, *, sender: str = "") -> None:
    """Delete an update that its sender delivered, unless another sender has taken it over.

    It stays if the run was announced again meanwhile.
    """
    row = tables.outbox.c
    delivered = delete(tables.outbox).where(
        row.run == item.run, row.sender == sender, row.revision == item.revision
    )
    if not tx.sql.execute(delivered).rowcount:
        tx.sql.execute(_update_claimed(item, sender).values(_RELEASED))


def delete_old_updates(tx: Transaction) -> None:
    """Delete the updates that were announced more than 30 days ago."""
    tx.sql.execute(delete(tables.outbox).where(tables.outbox.c.revision < tx.now - _KEEP))


def postpone_update(
    tx: Transaction, item: PendingRunUpdate, *, seconds: float, why: str, sender: str = ""
) -> None:
    """Retry the delivery later."""
    tx.sql.execute(
        _update_claimed(item, sender).values(
            attempts=item.attempts + 1,
            next_attempt_at=tx.now + round(seconds * SECOND),
            sender="",
            error=why[:500],
        )
    )


def retry_postponed(tx: Transaction, *, most: int = 10_000) -> None:
    """Have updates whose delivery failed tried again now, those that are due first.

    most: so many. Those that Slack asked to wait for are not among them.
    """
    row = tables.outbox.c
    postponed = (
        select(row.run)
        .where(row.attempts > 0, row.sender == "", row.error.not_in(RATE_LIMIT_ERRORS))
        .order_by(row.next_attempt_at)
        .limit(most)
    )
    runs = tx.sql.execute(postponed).scalars().all()
    tx.sql.execute(update(tables.outbox).where(row.run.in_(runs)).values(next_attempt_at=tx.now))


def release_claims(tx: Transaction, sender: str) -> None:
    """Release the claims of this sender, so that other senders deliver immediately."""
    tx.sql.execute(_update_released().where(tables.outbox.c.sender == sender))


def release_all_claims(tx: Transaction) -> None:
    """Release the claims of all senders: no other process works on this database."""
    tx.sql.execute(_update_released().where(tables.outbox.c.sender != ""))


def _update_claimed(item: PendingRunUpdate, sender: str) -> Update:
    row = tables.outbox.c
    return update(tables.outbox).where(row.run == item.run, row.sender == sender)


def _update_released() -> Update:
    return update(tables.outbox).values(
        sender="", next_attempt_at=0, attempts=tables.outbox.c.attempts + 1
    )


def has_pending_update(tx: Transaction, run: int) -> bool:
    """Return whether a run has an update that is not delivered yet."""
    query = select(tables.outbox.c.run).where(tables.outbox.c.run == run)
    return tx.sql.execute(query).first() is not None


def announce_message(tx: Transaction, slot: str) -> None:
    """Have the messages with this name brought up to date, if they were posted."""
    message = tables.slack_message.c
    for run in tx.sql.execute(select(message.run).where(message.slot == slot)).scalars().all():
        announce_run(tx, run)


def list_messages(tx: Transaction, run: int) -> dict[str, PostedMessage]:
    """Return the run's messages by slot."""
    rows = tx.sql.execute(select(tables.slack_message).where(tables.slack_message.c.run == run))
    return {row.slot: PostedMessage(*row) for row in rows}


def find_run_of_message(tx: Transaction, channel: str, ts: str) -> int | None:
    """Return the run that a message is about; None for a message that is not about one."""
    message = tables.slack_message.c
    query = select(message.run).where(
        message.ts == ts, message.channel == channel, message.slot != SHARED_CARD
    )
    return tx.sql.execute(query).scalars().first()


def store_message(tx: Transaction, message: PostedMessage) -> None:
    """Store where a message was posted, and the digest of its content."""
    values = {"channel": message.channel, "ts": message.ts, "digest": message.digest}
    if not tx.insert_once(tables.slack_message, run=message.run, slot=message.slot, **values):
        tx.sql.execute(
            update(tables.slack_message)
            .where(
                tables.slack_message.c.run == message.run,
                tables.slack_message.c.slot == message.slot,
            )
            .values(**values)
        )


def delete_messages(tx: Transaction, run: int, slots: Sequence[str]) -> None:
    """Forget where messages of a run were posted."""
    message = tables.slack_message.c
    tx.sql.execute(delete(tables.slack_message).where(message.run == run, message.slot.in_(slots)))
