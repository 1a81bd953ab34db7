"""Refusals, logged at most once a minute per kind, so that they cannot flood the log."""

import logging

from bot.audit import change_log
from bot.audit.event_type import Event
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.model.run import Run
from bot.model.times import MINUTE

log = logging.getLogger(__name__)

_INTERVAL = MINUTE
# How many refusals of a kind and person are logged per minute, at most one for each run.
_MAX_PER_INTERVAL = 20


def log_refusal(tx: Transaction, refusal: Event) -> None:
    """Log a refusal in this transaction, unless one of its kind was logged in the last minute."""
    if not _is_recently_logged(tx, refusal.kind):
        change_log.append_entry(tx, refusal)


def log_person_refusal(
    tx: Transaction, refusal: Event, *, person: str, run: Run | None = None
) -> None:
    """Log a refusal to a known person, unless the same was logged in the last minute.

    Refusals for different runs are logged separately, up to a limit per minute.
    """
    number, host = (run.id, run.host) if run else (None, "")
    lately = [
        one
        for one in change_log.list_entries_since(tx, refusal.kind, tx.now - _INTERVAL)
        if one.person == person
    ]
    if len(lately) < _MAX_PER_INTERVAL and all(one.run != number for one in lately):
        change_log.append_entry(tx, refusal, run=number, person=person, host=host)


def log_refusal_in_own_transaction(database: Database, refusal: Event) -> None:
    """Log a refusal in its own transaction; the refusal holds even if logging fails."""
    try:
        with database.reading() as tx:
            if _is_recently_logged(tx, refusal.kind):
                return
        with database.transaction() as tx:
            log_refusal(tx, refusal)
    except StoreUnavailable as error:
        log.warning("a refusal could not be logged: %s", error)


def _is_recently_logged(tx: Transaction, kind: str) -> bool:
    last = change_log.get_last_entry_of_kind(tx, kind)
    return last is not None and tx.now - last.at <= _INTERVAL
