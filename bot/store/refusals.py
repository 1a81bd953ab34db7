"""Refusals at a door, logged at most once a minute of each kind: nobody can flood the log."""

import logging

from bot.digest import Canonical
from bot.store import changelog
from bot.store.database import Database, StoreUnavailable, Transaction

log = logging.getLogger(__name__)

SIGN_IN, STRANGER, TOKEN = "sign-in refused", "stranger refused", "token refused"
HOOK = "hook refused"
_APART = 60 * 1_000_000


def note(tx: Transaction, kind: str, **facts: Canonical) -> None:
    """Log it in the caller's transaction, unless one of its kind is a minute old or less."""
    if not _lately(tx, kind):
        changelog.append(tx, kind, run=None, person="", host="", **facts)


def note_apart(database: Database, kind: str, **facts: Canonical) -> None:
    """Do so in a transaction of its own; a refusal stands, whether it could be logged or not."""
    try:
        with database.reading() as tx:
            if _lately(tx, kind):
                return
        with database.transaction() as tx:
            note(tx, kind, **facts)
    except StoreUnavailable as trouble:
        log.warning("a refusal could not be logged: %s", trouble)


def _lately(tx: Transaction, kind: str) -> bool:
    last = changelog.last_of_kind(tx, kind)
    return last is not None and tx.now - last.at <= _APART
