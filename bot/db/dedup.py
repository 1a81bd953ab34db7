"""What was seen already: requests that must have one effect however often they arrive."""

import json
from collections.abc import Sequence

from sqlalchemy import delete

from bot.db import tables
from bot.db.database import Transaction

# Bolt takes timestamps up to five minutes old or early: ten minutes in all, and some to spare.
KEEP_SECONDS = 15 * 60

_REMEMBER = (
    "INSERT INTO seen (key, at) SELECT key, %s FROM unnest(%s::text[]) AS key "
    "ON CONFLICT DO NOTHING RETURNING key"
)
_REMEMBER_ON_SQLITE = (
    "INSERT INTO seen (key, at) SELECT value, ?1 FROM json_each(?2) WHERE true "
    "ON CONFLICT DO NOTHING RETURNING key"
)


def remember_first(tx: Transaction, key: str) -> bool:
    """Return whether *key* is new, and remember it."""
    return tx.insert_once(tables.seen, key=key, at=tx.now)


def remember_first_of(tx: Transaction, keys: Sequence[str]) -> set[str]:
    """Return which of the keys are new, and remember all of them: by one statement."""
    if tx.embedded:
        new = tx.wire.rows(_REMEMBER_ON_SQLITE, (tx.now, json.dumps(keys)))
    else:
        new = tx.wire.rows(_REMEMBER, (tx.now, list(keys)))
    return {key for (key,) in new}


def forget_key(tx: Transaction, key: str) -> None:
    """Take *key* for new the next time: what it stood for has not happened."""
    tx.sql.execute(delete(tables.seen).where(tables.seen.c.key == key))


def delete_old_keys(tx: Transaction) -> None:
    horizon = tx.now - KEEP_SECONDS * 1_000_000
    tx.sql.execute(delete(tables.seen).where(tables.seen.c.at < horizon))
