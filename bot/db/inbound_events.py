"""What was told from outside, each event once, and what is to be told there, each in its turn."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text, delete

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db.database import Transaction
from bot.db.tables import metadata

EVENT = "event"
_KEEP = 30 * 86_400_000_000

# Events that were told already, by their source and their own key.
outside_event = Table(
    "outside_event",
    metadata,
    Column("source", String(64), primary_key=True),
    Column("key", String(64), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Index(None, "at"),
)

# How far each subscription has read the change log, and what it is still to be told of. dead: when
# it was given up.
subscription = Table(
    "subscription",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("seq", BigInteger, nullable=False),
)

delivery = Table(
    "delivery",
    metadata,
    Column("subscription", String(64), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("run", Integer, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("not_before", BigInteger, nullable=False),
    Column("dead", BigInteger),
    Column("trouble", Text, nullable=False),
    Index(None, "subscription", "run", "seq"),
    Index(None, "dead"),
)


def record_event(
    tx: Transaction,
    source: str,
    key: str,
    *,
    hosts: tuple[str, ...],
    at: int | None,
    said: Mapping[str, str],
) -> Entry | None:
    """Log an event of that source, once; None if it was told before.

    at: when it happened as its source says; said: what it says besides, of which `title` is shown.
    """
    if not tx.insert_once(outside_event, source=source, key=key, at=tx.now):
        return None
    facts: dict[str, Any] = {name: text for name, text in said.items() if text}
    host = hosts[0] if len(hosts) == 1 else ""
    return change_log.append_entry(
        tx, EVENT, host=host, source=source, hosts=list(hosts), happened=at, **facts
    )


def delete_old_events(tx: Transaction) -> None:
    """Forget which events were told so long ago that nobody tells of them again."""
    tx.sql.execute(delete(outside_event).where(outside_event.c.at < tx.now - _KEEP))
