"""News: which runs a door has still to tell of, and where it has told of them.

The row says only that there is news, in the same transaction as the news itself. Whoever delivers
it draws the run as it is by then, so a late message can never overwrite a newer one.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select, update
from sqlalchemy.dialects import postgresql, sqlite

from bot.store import tables
from bot.store.database import Transaction
from bot.store.rote import Rote

_MORE = {"revision": tables.news.c.revision + 1}
_ANNOUNCE = Rote(
    postgresql.insert(tables.news).on_conflict_do_update(index_elements=["run"], set_=_MORE),
    sqlite.insert(tables.news).on_conflict_do_update(index_elements=["run"], set_=_MORE),
)


@dataclass(frozen=True)
class Pending:
    """A run with something to tell. revision: what will have been told when it is delivered."""

    run: int
    revision: int
    tries: int


@dataclass(frozen=True)
class Notice:
    """One message that a door keeps up to date. digest: of what it shows now."""

    run: int
    slot: str
    channel: str
    ts: str
    digest: str


def announce(tx: Transaction, run: int) -> None:
    """Say that *run* has news. Several before a delivery become one."""
    tx.after_commit(tx.tell_news)
    _ANNOUNCE.tell(tx, run=run, revision=1, told=0, tries=0, not_before=0, trouble="")


def pending(tx: Transaction, *, most: int = 100) -> list[Pending]:
    return [
        Pending(row.run, row.revision, row.tries) for row in tx.sql.execute(_pending(tx, most))
    ]


def _pending(tx: Transaction, most: int) -> Select[Any]:
    return (
        select(tables.news)
        .where(tables.news.c.revision > tables.news.c.told, tables.news.c.not_before <= tx.now)
        .order_by(tables.news.c.run)
        .limit(most)
    )


def held(tx: Transaction) -> list[Pending]:
    """Return what is pending, kept from others until this transaction ends: nobody tells it now,
    and what is read of it from here on is as nobody has told it yet."""
    query = _pending(tx, 100).with_for_update(skip_locked=True)
    return [Pending(row.run, row.revision, row.tries) for row in tx.sql.execute(query)]


def claim(tx: Transaction, item: Pending, *, seconds: float) -> bool:
    """Keep others from delivering it for so long; False if somebody else is at it already."""
    claimed = tx.sql.execute(
        update(tables.news)
        .where(
            tables.news.c.run == item.run,
            tables.news.c.revision > tables.news.c.told,
            tables.news.c.not_before <= tx.now,
        )
        .values(not_before=tx.now + round(seconds * 1_000_000))
    )
    return claimed.rowcount == 1


def told(tx: Transaction, item: Pending) -> None:
    tx.sql.execute(
        update(tables.news)
        .where(tables.news.c.run == item.run)
        .values(told=item.revision, tries=0, not_before=0, trouble="")
    )


def postpone(tx: Transaction, item: Pending, *, seconds: float, why: str) -> None:
    """Try again later; the news keeps."""
    tx.sql.execute(
        update(tables.news)
        .where(tables.news.c.run == item.run)
        .values(
            tries=item.tries + 1,
            not_before=tx.now + round(seconds * 1_000_000),
            trouble=why[:500],
        )
    )


def notices(tx: Transaction, run: int) -> dict[str, Notice]:
    """Return the run's messages by slot."""
    rows = tx.sql.execute(select(tables.notice).where(tables.notice.c.run == run))
    return {row.slot: Notice(row.run, row.slot, row.channel, row.ts, row.digest) for row in rows}


def remember(tx: Transaction, notice: Notice) -> None:
    """Keep where a message stands and what it shows."""
    values = {"channel": notice.channel, "ts": notice.ts, "digest": notice.digest}
    if not tx.insert_once(tables.notice, run=notice.run, slot=notice.slot, **values):
        tx.sql.execute(
            update(tables.notice)
            .where(tables.notice.c.run == notice.run, tables.notice.c.slot == notice.slot)
            .values(**values)
        )
