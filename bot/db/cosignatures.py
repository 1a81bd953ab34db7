"""The signatures of witnesses under checkpoints of the change log, and their time stamps."""

from collections.abc import Generator
from typing import Any

from sqlalchemy import Row, select

from bot.db import tables
from bot.db.database import Transaction

_ROWS = tables.cosignature.c
_STAMPS = tables.time_stamp.c


def add_cosignature(tx: Transaction, size: int, witness: str, line: str) -> None:
    """Store the signature of a witness; the first one of each checkpoint is kept."""
    tx.insert_once(tables.cosignature, size=size, witness=witness, line=line)


def list_cosignatures(tx: Transaction, size: int) -> tuple[str, ...]:
    """Return the lines of the note of a checkpoint, one for each witness."""
    query = select(_ROWS.line).where(_ROWS.size == size).order_by(_ROWS.witness)
    return tuple(tx.sql.execute(query).scalars())


def get_newest_size(tx: Transaction) -> int:
    """Return the size of the newest checkpoint that a witness has cosigned; 0 for none."""
    query = select(_ROWS.size).order_by(_ROWS.size.desc()).limit(1)
    return tx.sql.execute(query).scalar() or 0


def iterate_cosignatures(tx: Transaction) -> Generator[tuple[int, str]]:
    """Yield the size and the line of each, in the order of the log."""
    query = select(_ROWS.size, _ROWS.line).order_by(_ROWS.size, _ROWS.witness)
    with tx.sql.execute(query.execution_options(yield_per=2000)) as found:
        for row in found:
            yield row.size, row.line


def add_time_stamp(tx: Transaction, size: int, response: str) -> None:
    """Store the time stamp of a checkpoint, in base64."""
    tx.insert_once(tables.time_stamp, size=size, at=tx.now, response=response)


def get_newest_time_stamp(tx: Transaction) -> Row[Any] | None:
    """Return the row of the newest time stamp."""
    query = select(tables.time_stamp).order_by(_STAMPS.size.desc()).limit(1)
    return tx.sql.execute(query).first()


def iterate_time_stamps(tx: Transaction) -> Generator[tuple[int, str]]:
    """Yield the size of each stamped checkpoint and its stamp, in the order of the log."""
    query = select(_STAMPS.size, _STAMPS.response).order_by(_STAMPS.size)
    with tx.sql.execute(query.execution_options(yield_per=2000)) as found:
        for row in found:
            yield row.size, row.response
