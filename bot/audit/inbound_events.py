"""Events received by webhook, each recorded once."""

from sqlalchemy import delete

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.db.database import Transaction
from bot.db.tables import inbound_event
from bot.model.times import DAY

_RETENTION = 30 * DAY


def record_event(tx: Transaction, key: str, event: events.ExternalEvent) -> Entry | None:
    """Log an event of a source, once; None if it was recorded before. key: its id there."""
    if not tx.insert_once(inbound_event, source=event.source, key=key, received_at=tx.now):
        return None
    host = event.hosts[0] if len(event.hosts) == 1 else ""
    return change_log.append_entry(tx, event, host=host)


def delete_old_events(tx: Transaction) -> None:
    """Delete the keys of events that are too old to be sent again."""
    tx.sql.execute(delete(inbound_event).where(inbound_event.c.received_at < tx.now - _RETENTION))
