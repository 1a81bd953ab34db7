"""Snapshots of what is remembered of the change log, so that a start does not read all of it.

A snapshot has a MAC with a key that is derived from the signing key, and is of one tree. It counts
if Keyturn wrote it, the stored hashes have its root, and it was made by the same rules. Otherwise
it is ignored, and the log is read from its first entry. So a person who writes to the database
without the key can make a start slow, and nothing else. An older snapshot of the same log is as
good: the entries after it are read.
"""

import logging
from dataclasses import fields, replace
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row, delete, select

from bot.audit import change_log, events, log_state
from bot.audit.change_log import LogAlteredError
from bot.audit.checkpoints import encode_root
from bot.audit.log_state import LogState
from bot.auth import row_mac
from bot.db import tables
from bot.db.database import Transaction
from bot.model.canonical import hash_canonical
from bot.model.merkle import Tree

log = logging.getLogger(__name__)

_CONTENT = TypeAdapter(LogState)
_NOT_STORED = {"tree", "copied_runs"}
# Counted up when LogState means something else by the same names.
_EDITION = 1
# Which entries are remembered, and how: a snapshot by other rules may lack some.
_RULES = hash_canonical(
    [
        _EDITION,
        [one.name for one in fields(LogState)],
        sorted(log_state.DECIDING_KINDS),
        sorted(log_state.SCHEDULE_END_KINDS),
        sorted(events.FINAL_KINDS),
        log_state.SUBJECT_FACTS,
    ]
)
_SNAPSHOT = select(tables.log_snapshot).where(tables.log_snapshot.c.rules == _RULES)
_DELETE = delete(tables.log_snapshot).where(tables.log_snapshot.c.rules == _RULES)
_SIZE = select(tables.log_snapshot.c.size).where(tables.log_snapshot.c.rules == _RULES)


class _UnusableError(Exception):
    """The stored snapshot does not count."""


def count_entries_after_snapshot(tx: Transaction, state: LogState) -> int:
    """Return how many entries the stored snapshot lacks."""
    stored: object = tx.sql.execute(_SIZE).scalar()
    # The row is not verified here: what is no number, or is of more entries, is replaced.
    size = stored if isinstance(stored, int) else 0
    return state.tree.size - (size if 0 < size <= state.tree.size else 0)


def encode_content(state: LogState) -> str:
    """Return what is stored of it, as JSON: without its tree, which the stored hashes have."""
    return _CONTENT.dump_json(state, exclude=_NOT_STORED).decode()


def store_snapshot(tx: Transaction, state: LogState) -> None:
    """Store what is known, in place of the snapshot before."""
    # Of several processes, one stores it.
    change_log.lock_log(tx)
    values = {
        "rules": _RULES,
        "size": state.tree.size,
        "root": encode_root(state.tree),
        "content": encode_content(state),
    }
    values["mac"] = tx.signing_key.create_mac(row_mac.encode_row(tables.log_snapshot, values))
    tx.sql.execute(_DELETE)
    tx.sql.execute(tables.log_snapshot.insert(), values)


def delete_snapshots(tx: Transaction) -> None:
    """Delete all snapshots, so that the next process reads the whole log."""
    tx.sql.execute(delete(tables.log_snapshot))


def load_snapshot(tx: Transaction, size: int) -> LogState | None:
    """Return what the stored snapshot says of a log of this size; None if none is of any use."""
    row = tx.sql.execute(_SNAPSHOT).first()
    if row is None:
        return None
    try:
        tree = _build_tree(tx, row, size)
    except _UnusableError as error:
        log.warning("the snapshot of the change log is ignored, so all of it is read: %s", error)
        # After the lock, as in store_snapshot(): two processes would block each other.
        change_log.take_lock(tx)
        tx.sql.execute(_DELETE)
        return None
    return replace(_CONTENT.validate_json(row.content), tree=tree)


def _build_tree(tx: Transaction, row: Row[Any], size: int) -> Tree:
    """Return the tree of a snapshot of a log of this size. Raises _UnusableError."""
    if not row_mac.is_mac_valid(tx, tables.log_snapshot, row):
        raise _UnusableError("Keyturn did not write it")
    if row.size > size:
        raise _UnusableError(f"it is of entry {row.size}, and the log ends at entry {size}")
    try:
        tree = change_log.build_tree(tx, row.size)
    except LogAlteredError as error:
        raise _UnusableError(error.reason) from None
    if encode_root(tree) != row.root:
        raise _UnusableError(f"it is of another log with {row.size} entries")
    return tree
