"""Events received by webhook, each recorded once."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db.database import Transaction
from bot.db.tables import inbound_event
from bot.model.times import DAY

EVENT_KIND = "event"
_RETENTION = 30 * DAY


def record_event(
    tx: Transaction,
    source: str,
    key: str,
    *,
    hosts: tuple[str, ...],
    happened_at: int | None,
    details: Mapping[str, str],
) -> Entry | None:
    """Log an event of a source, once; None if it was recorded before.

    happened_at: the time that the source reports. details: other texts; `title` is displayed.
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
    """Delete the keys of events that are too old to be sent again."""
    tx.sql.execute(delete(inbound_event).where(inbound_event.c.received_at < tx.now - _RETENTION))
