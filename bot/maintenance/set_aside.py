"""Set aside rows that someone inserted into the change log behind its last checkpoint.

Keyturn never signs on top of a row that it did not write, so such a row stops everything. A person
moves these rows into a file, and the log records which they were. A row under the signed root
cannot be set aside: if it was altered, only a restore helps.
"""

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Table, delete, or_, select, text
from sqlalchemy.sql.elements import ColumnElement

from bot.audit import change_log, events
from bot.audit.change_log import LogAlteredError
from bot.audit.checkpoints import Checkpoint, is_signed_by, parse_note
from bot.db import tables
from bot.db.database import Database, Transaction
from bot.maintenance.durable import sync_to_disk
from bot.model.errors import InvalidRequestError
from bot.model.merkle import TILE_HEIGHT

# The newest checkpoints that are tried.
_MAX_CHECKPOINTS = 10_000


@dataclass(frozen=True)
class ForeignRows:
    """Rows that no checkpoint of Keyturn covers."""

    size: int
    """How many entries the newest valid checkpoint covers."""
    rows: Sequence[tuple[str, dict[str, Any]]]
    """The name of the table and the columns of each."""

    def describe(self) -> list[str]:
        """Return a line for each row."""
        return [f"{table} {json.dumps(row, default=repr)}" for table, row in self.rows]


def find_foreign_rows(tx: Transaction) -> ForeignRows:
    """Return the rows behind the newest checkpoint that our key signed and that the rows have.

    Raises LogAlteredError if there is no such checkpoint.
    """
    size = _find_signed_size(tx)
    found = [
        (table.name, dict(row))
        for table, condition in _list_conditions(size)
        for row in tx.sql.execute(select(table).where(condition)).mappings()
    ]
    return ForeignRows(size, found)


def set_rows_aside(
    database: Database,
    directory: Path,
    *,
    count: int,
    person: str,
    reason: str,
    login: str,
    witnesses: Sequence[Checkpoint] = (),
) -> Path:
    """Move the foreign rows into a file in this directory, and log it. Return the file.

    No other process may write to the database.

    Args:
        database: The database, with a role that owns its tables.
        directory: Of the file.
        count: How many rows there are, as the person has seen.
        person: Who decided it.
        reason: Why.
        login: The login on this machine.
        witnesses: The checkpoints of the witnesses.

    Raises:
        InvalidRequestError: There is nothing to set aside, or it is another number of rows.
        LogAlteredError: A row under the signed root was altered, or a witness saw entries that are
            not there: they were lost, not inserted.
    """
    with database.transaction() as tx:
        change_log.take_lock(tx)
        found = find_foreign_rows(tx)
        _check_witnesses(found, witnesses)
        if not found.rows:
            raise InvalidRequestError("no row stands behind the last checkpoint: nothing was done")
        if len(found.rows) != count:
            raise InvalidRequestError(
                f"{len(found.rows)} rows stand behind the checkpoint of entry {found.size}. Look "
                f"at them, then add --rows {len(found.rows)}"
            )
        content = "".join(f"{line}\n" for line in found.describe()).encode()
        file = directory / f"set-aside-after-{found.size}-at-{tx.now}.txt"
        _write_file(file, content)
        _delete_rows(tx, found.size)
        change_log.append_entry(
            tx,
            events.RowsSetAside(
                after=found.size,
                rows=len(found.rows),
                file=file.name,
                sha256=sha256(content).hexdigest(),
                reason=reason,
                login=login,
            ),
            person=person,
        )
    return file


def _find_signed_size(tx: Transaction) -> int:
    """Return the size of the newest checkpoint that our key signed.

    Raises LogAlteredError if the entries before it do not have its root.
    """
    entry = tables.entry.c
    newest = select(entry.seq, entry.note).where(entry.note.is_not(None))
    for seq, note in tx.sql.execute(newest.order_by(entry.seq.desc()).limit(_MAX_CHECKPOINTS)):
        point = parse_note(note) if isinstance(note, str) else None
        if point is None or point.size != seq:
            continue
        if is_signed_by(point, tx.signing_key.public_key):
            with suppress(LogAlteredError):
                return change_log.build_tree_of(tx, point).size
            break
    raise LogAlteredError("no checkpoint fits the entries before it: restore a backup")


def _list_conditions(size: int) -> list[tuple[Table, ColumnElement[bool]]]:
    """Return what is behind the tree of this size, each table after those that refer to it."""
    entry, tile = tables.entry.c.seq, tables.tile.c
    levels = range(1, size.bit_length() // TILE_HEIGHT + 1)
    behind = [(tile.level == n) & (tile.number >= size >> n * TILE_HEIGHT) for n in levels]
    return [
        (tables.output, or_(tables.output.c.entry > size, tables.output.c.entry < 1)),
        (tables.entry, or_(entry > size, entry < 1)),
        (tables.tile, or_(tile.level > len(levels), tile.level < 1, *behind)),
    ]


def _check_witnesses(found: ForeignRows, witnesses: Sequence[Checkpoint]) -> None:
    last = max((point.size for point in witnesses), default=0)
    if last > found.size:
        raise LogAlteredError(
            f"a witness saw entry {last}, and Keyturn signed only {found.size} of those that are "
            "here: entries were removed, not only added"
        )


def _write_file(file: Path, content: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    sync_to_disk(file)
    sync_to_disk(file.parent)


def _delete_rows(tx: Transaction, size: int) -> None:
    for table, condition in _list_conditions(size):
        with _allow_deletion(tx, table):
            tx.sql.execute(delete(table).where(condition))


@contextmanager
def _allow_deletion(tx: Transaction, table: Table) -> Generator[None]:
    """Switch off, in this transaction, what makes a table append-only."""
    if not tx.embedded:
        tx.sql.execute(text(f'ALTER TABLE "{table.name}" DISABLE TRIGGER USER'))
        yield
        tx.sql.execute(text(f'ALTER TABLE "{table.name}" ENABLE TRIGGER USER'))
        return
    known = text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :name")
    triggers = tx.sql.execute(known, {"name": table.name}).all()
    for name, _ in triggers:
        tx.sql.execute(text(f'DROP TRIGGER "{name}"'))
    yield
    for _, statement in triggers:
        tx.sql.execute(text(statement))
