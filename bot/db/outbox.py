"""News: which runs a door has still to tell of, and where it has told of them.

The row says only that there is news, in the same transaction as the news itself. Whoever delivers
it draws the run as it is by then, so a late message can never overwrite a newer one.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, Update, select, update

from bot.db import tables
from bot.db.database import Transaction

_MORE = {"revision": tables.outbox.c.revision + 1}
_NOTHING_TOLD = {
    "revision": 1,
    "delivered_revision": 0,
    "attempts": 0,
    "next_attempt_at": 0,
    "sender": "",
    "error": "",
}


@dataclass(frozen=True)
class PendingRunUpdate:
    """A run with something to tell. revision: what will have been told when it is delivered.

    tries: how often it was tried, by somebody who died over it too: what they said may be there.
    """

    run: int
    revision: int
    attempts: int


@dataclass(frozen=True)
class PostedMessage:
    """One message that a door keeps up to date. digest: of what it shows now."""

    run: int
    slot: str
    channel: str
    ts: str
    digest: str


def announce_run(tx: Transaction, run: int) -> None:
    """Say that *run* has news. Several before a delivery become one."""
    tx.after_commit(tx.tell_news)
    announce = tx.insert_into(tables.outbox).on_conflict_do_update(
        index_elements=["run"], set_=_MORE
    )
    tx.sql.execute(announce, {"run": run, **_NOTHING_TOLD})


def list_pending_updates(tx: Transaction, *, most: int = 100) -> list[PendingRunUpdate]:
    return [_item(row) for row in tx.sql.execute(_pending(tx, most))]


def _item(row: Row[Any]) -> PendingRunUpdate:
    return PendingRunUpdate(row.run, row.revision, row.attempts + bool(row.sender))


def _pending(tx: Transaction, most: int) -> Select[Any]:
    return (
        select(tables.outbox)
        .where(
            tables.outbox.c.revision > tables.outbox.c.delivered_revision,
            tables.outbox.c.next_attempt_at <= tx.now,
        )
        .order_by(tables.outbox.c.run)
        .limit(most)
    )


def lock_pending_update(tx: Transaction) -> list[PendingRunUpdate]:
    """Return what is pending, kept from others until this transaction ends: nobody tells it now,
    and what is read of it from here on is as nobody has told it yet."""
    query = _pending(tx, 100).with_for_update(skip_locked=True)
    return [_item(row) for row in tx.sql.execute(query)]


def claim_update(tx: Transaction, item: PendingRunUpdate, *, sender: str, seconds: float) -> bool:
    """Keep others from delivering it for so long; False if somebody else is at it already.

    sender: who delivers it meanwhile, "" if it only waits.
    """
    claimed = tx.sql.execute(
        update(tables.outbox)
        .where(
            tables.outbox.c.run == item.run,
            tables.outbox.c.revision > tables.outbox.c.delivered_revision,
            tables.outbox.c.next_attempt_at <= tx.now,
        )
        .values(sender=sender, next_attempt_at=tx.now + round(seconds * 1_000_000))
    )
    return claimed.rowcount == 1


def renew(tx: Transaction, item: PendingRunUpdate, *, sender: str, seconds: float) -> None:
    """Keep others from it for so long from now on, if they have not taken it over."""
    until = tx.now + round(seconds * 1_000_000)
    tx.sql.execute(_held_by(item, sender).values(next_attempt_at=until))


def mark_delivered(tx: Transaction, item: PendingRunUpdate, *, sender: str = "") -> None:
    """Note that it was told by who claimed it, unless others have taken it over since."""
    done = _held_by(item, sender)
    tx.sql.execute(
        done.values(
            delivered_revision=item.revision, attempts=0, next_attempt_at=0, sender="", error=""
        )
    )


def postpone_update(
    tx: Transaction, item: PendingRunUpdate, *, seconds: float, why: str, sender: str = ""
) -> None:
    """Try again later; the news keeps."""
    tx.sql.execute(
        _held_by(item, sender).values(
            attempts=item.attempts + 1,
            next_attempt_at=tx.now + round(seconds * 1_000_000),
            sender="",
            error=why[:500],
        )
    )


def release(tx: Transaction, sender: str) -> None:
    """Let others deliver at once what this sender has claimed and will not tell."""
    tx.sql.execute(_released().where(tables.outbox.c.sender == sender))


def release_all(tx: Transaction) -> None:
    """The same for all senders: they are dead, since nobody else works on this database."""
    tx.sql.execute(_released().where(tables.outbox.c.sender != ""))


def _held_by(item: PendingRunUpdate, sender: str) -> Update:
    row = tables.outbox.c
    return update(tables.outbox).where(row.run == item.run, row.sender == sender)


def _released() -> Update:
    return update(tables.outbox).values(
        sender="", next_attempt_at=0, attempts=tables.outbox.c.attempts + 1
    )


def has_more(tx: Transaction, run: int) -> bool:
    """Return whether there is news of a run that was not told yet, or is being told."""
    query = select(tables.outbox.c.run).where(
        tables.outbox.c.run == run, tables.outbox.c.revision > tables.outbox.c.delivered_revision
    )
    return tx.sql.execute(query).first() is not None


def list_messages(tx: Transaction, run: int) -> dict[str, PostedMessage]:
    """Return the run's messages by slot."""
    rows = tx.sql.execute(select(tables.slack_message).where(tables.slack_message.c.run == run))
    return {
        row.slot: PostedMessage(row.run, row.slot, row.channel, row.ts, row.digest) for row in rows
    }


def store_message(tx: Transaction, notice: PostedMessage) -> None:
    """Keep where a message stands and what it shows."""
    values = {"channel": notice.channel, "ts": notice.ts, "digest": notice.digest}
    if not tx.insert_once(tables.slack_message, run=notice.run, slot=notice.slot, **values):
        tx.sql.execute(
            update(tables.slack_message)
            .where(
                tables.slack_message.c.run == notice.run,
                tables.slack_message.c.slot == notice.slot,
            )
            .values(**values)
        )
