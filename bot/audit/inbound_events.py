"""What was told from outside, each event once, and what is to be told there, each in its turn."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db.database import Transaction
from bot.db.tables import inbound_event

EVENT_KIND = "event"
_RETENTION = 30 * 86_400_000_000


def record_event(
    tx: Transaction,
    source: str,
    key: str,
    *,
    hosts: tuple[str, ...],
    happened_at: int | None,
    details: Mapping[str, str],
) -> Entry | None:
    """Log an event of that source, once; None if it was told before.

    at: when it happened as its source says; said: what it says besides, of which `title` is shown.
    """
    if not tx.insert_once(inbound_event, source=source, key=key, received_at=tx.now):
        return None
    facts: dict[str, Any] = {name: text for name, text in details.items() if text}
    host = hosts[0] if len(hosts) == 1 else ""
    return change_log.append_entry(
        tx,
        EVENT_KIND,
        host=host,
        source=source,
        hosts=list(hosts),
        occurred_at=happened_at,
        **facts,
    )


def delete_old_events(tx: Transaction) -> None:
    """Forget which events were told so long ago that nobody tells of them again."""
    tx.sql.execute(delete(inbound_event).where(inbound_event.c.received_at < tx.now - _RETENTION))
