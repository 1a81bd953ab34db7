"""How far the collector is behind, for the page Health and `keyturn doctor`."""

from collections.abc import Iterator

from bot.audit import change_log, events
from bot.db.database import Transaction
from bot.features.collector.rows import get_cursor
from bot.model.check_result import CheckResult, create_error_result, create_ok_result
from bot.model.text import format_count
from bot.policy import Policy

_SUBJECT = "Collector"
# Entries that are appended while a batch is sent.
_USUAL = 1_000


def is_configured(tx: Transaction) -> bool:
    """Return whether the service that started last sends to a collector."""
    entry = change_log.get_last_entry_of_kind(tx, events.SettingsChanged.kind)
    event = entry.event if entry else None
    return isinstance(event, events.SettingsChanged) and bool(event.settings.get("collector"))


def check_collector(tx: Transaction, _policy: Policy) -> Iterator[CheckResult]:
    """Check that the collector has received the change log."""
    if not is_configured(tx):
        return
    cursor = get_cursor(tx)
    behind = change_log.get_head(tx)[0] - cursor.seq
    lacks = f"lacks {format_count(behind, 'entry', plural='entries')} of the change log"
    if cursor.error:
        yield create_error_result(
            _SUBJECT, f"{lacks}: {cursor.error}. They are sent again until it accepts them"
        )
    elif behind > _USUAL:
        yield create_error_result(_SUBJECT, f"{lacks}. See the log of the service")
    else:
        yield create_ok_result(_SUBJECT, f"has received the change log up to entry {cursor.seq}")
