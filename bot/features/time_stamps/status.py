"""Whether the authority stamps the change log, for the page Health and `keyturn doctor`."""

from collections.abc import Iterator

from bot.audit import change_log, events
from bot.db import cosignatures
from bot.db.database import Transaction
from bot.model.check_result import CheckResult, create_error_result, create_ok_result
from bot.model.times import HOUR, format_utc
from bot.policy import Policy

_SUBJECT = "Time stamps"
# A try that failed is made again after some minutes.
_PATIENCE = HOUR // 4
_LATE = HOUR + _PATIENCE


def check_time_stamps(tx: Transaction, _policy: Policy) -> Iterator[CheckResult]:
    """Check that the newest entries have a stamp, if the service that started last wants one."""
    entry = change_log.get_last_entry_of_kind(tx, events.SettingsChanged.kind)
    event = entry.event if entry else None
    if not isinstance(event, events.SettingsChanged) or not event.settings.get("time_stamps"):
        return
    last, size = cosignatures.get_newest_time_stamp(tx), change_log.get_head(tx)[0]
    if last is None:
        yield create_error_result(_SUBJECT, "none yet. See the log of the service")
        return
    newest = f"the newest is of entry {last.size}, {format_utc(last.at)}"
    point = change_log.get_checkpoint_after(tx, last.size + 1)
    # After a quiet time an entry is new, and its stamp due within minutes.
    waiting = tx.now - point.at if point else _LATE
    if last.size < size and tx.now - last.at > _LATE and waiting > _PATIENCE:
        yield create_error_result(_SUBJECT, f"{newest}. See the log of the service")
    else:
        yield create_ok_result(_SUBJECT, newest)
