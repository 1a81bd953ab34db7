"""Copy an installation to another database, with its change log intact."""

import sqlite3
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from getpass import getuser
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Table, func, insert, inspect, select, text

from bot.audit import change_log, events, verification
from bot.db import migrations, tables
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.model.progress import BeginStage, ReportProgress, begin_silent_stage, ignore_progress

_BATCH_SIZE = 2_000
# Of a SQLite file, 40 MB.
PAGES = 10_000
# Time limit of a transaction that copies a whole database.
SECONDS = 3600.0
# Prefixes of the tables of libraries and of SQLite.
_FOREIGN_PREFIXES = ("alembic_", "procrastinate_", "sqlite_")

_SET_NEXT_ID_SQLITE = [
    text("DELETE FROM sqlite_sequence WHERE name = :table"),
    text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)"),
]
_SET_NEXT_ID_POSTGRESQL = text("SELECT setval(pg_get_serial_sequence(:table, 'id'), :next, false)")


class CopyError(ValueError):
    """The database cannot be copied. The message says why."""


def list_tables() -> list[Table]:
    """Return Keyturn's tables, each after those that it refers to."""
    return tables.metadata.sorted_tables


def count_rows(source: Database) -> int:
    """Return the number of rows to copy, for the progress."""
    with source.reading() as tx:
        return count_rows_in(tx)


def count_rows_in(tx: Transaction) -> int:
    return sum(_count(tx, table) for table in list_tables())


def copy_rows(source: Database, tx: Transaction, report: ReportProgress = ignore_progress) -> int:
    """Copy every row of *source* in the caller's transaction; return the number of rows.

    report: called with the number of rows of each batch. Raises CopyError if *source* has a table
    that this version does not know, or the target is not empty.
    """
    _check_no_foreign_tables(source)
    _check_empty(tx)
    copied = 0
    with source.reading() as source_tx:
        for table in list_tables():
            for rows in _read_batches(source_tx, table):
                tx.sql.execute(insert(table), rows)
                copied += len(rows)
                report(len(rows))
            highest = _get_highest_id(tx, table)
            if highest:
                set_next_number(tx, table.name, highest + 1)
    return copied


def copy_pages(source: Database, file: Path, report: ReportProgress = ignore_progress) -> None:
    """Copy a SQLite database to *file* by SQLite's own backup, at one point in time.

    Other connections may write meanwhile: it copies what the transaction around it sees. Raises
    CopyError and StoreUnavailable.
    """
    _check_no_foreign_tables(source)
    with source.reading() as tx, closing(sqlite3.connect(file)) as target:
        # The first statement fixes the state that the transaction sees.
        left = _count_pages(tx)

        def report_pages(_status: int, remaining: int, _total: int) -> None:
            nonlocal left
            left, copied = remaining, left - remaining
            report(copied)

        driver: Any = tx.sql.connection.driver_connection
        try:
            driver.backup(target, pages=PAGES, progress=report_pages)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the database cannot be copied: {error}") from error


def count_pages(source: Database) -> int:
    """Return the number of pages to copy, for the progress."""
    with source.reading() as tx:
        return _count_pages(tx)


def _count_pages(tx: Transaction) -> int:
    return tx.sql.execute(text("PRAGMA page_count")).scalar_one()


def set_next_number(tx: Transaction, table: str, number: int) -> None:
    """Set the id of the next row of a table with automatic ids."""
    if tx.sql.dialect.name == "postgresql":
        tx.sql.execute(_SET_NEXT_ID_POSTGRESQL, {"next": number, "table": table})
    elif tables.metadata.tables[table].dialect_options["sqlite"]["autoincrement"]:
        for statement in _SET_NEXT_ID_SQLITE:
            tx.sql.execute(statement, {"last": number - 1, "table": table})


def _read_batches(tx: Transaction, table: Table) -> Generator[list[dict[str, object]]]:
    query = select(table).order_by(*table.primary_key.columns)
    with closing(tx.sql.execute(query.execution_options(yield_per=_BATCH_SIZE))) as result:
        rows = result.mappings()
        while batch := [dict(row) for row in islice(rows, _BATCH_SIZE)]:
            yield batch


def _check_no_foreign_tables(source: Database) -> None:
    known = {table.name for table in list_tables()}
    names = inspect(source.engine).get_table_names()
    unknown = sorted(
        name for name in names if name not in known and not name.startswith(_FOREIGN_PREFIXES)
    )
    if unknown:
        raise CopyError(f"it contains {', '.join(unknown)}, which this version does not know")


def _check_empty(tx: Transaction) -> None:
    filled = [
        table.name for table in list_tables() if tx.sql.execute(select(table).limit(1)).first()
    ]
    if filled:
        raise CopyError(f"it has rows in {', '.join(filled)}: use an empty database")


def _get_highest_id(tx: Transaction, table: Table) -> int | None:
    column = table.autoincrement_column
    if column is None or column.name != "id":
        return None
    return tx.sql.execute(select(func.max(column))).scalar()


def _count(tx: Transaction, table: Table) -> int:
    return tx.sql.execute(select(func.count()).select_from(table)).scalar_one()


@dataclass(frozen=True)
class CopyResult:
    """The result of a copy."""

    rows: int
    entries: int
    """Number of log entries, including the one of the copy."""
    head: str
    """Hash of the last log entry."""


def copy_database(
    old: Database, new: Database, stages: BeginStage = begin_silent_stage
) -> CopyResult:
    """Copy everything into the empty database *new*, and log the copy there.

    No other process may use the databases. A broken log is not copied: investigate it in place.
    Raises CopyError, KeyFileError and StoreUnavailable; *new* then remains empty.
    """
    migrations.upgrade_schema(new)
    with old.reading() as tx:
        before = verification.verify_log(tx, stages=stages)
    if before.broken is not None:
        raise CopyError(f"its change log is broken at entry {before.broken}: {before.why}")
    with new.transaction(seconds=SECONDS) as tx:
        with stages("copying", lambda: count_rows(old)) as report:
            rows = copy_rows(old, tx, report)
        verification.open_log(tx)
        after = verification.verify_log(tx, stages=stages)
        if (after.entries, after.root, after.broken) != (before.entries, before.root, None):
            raise CopyError("the copied change log differs from the original")
        change_log.append_entry(
            tx,
            events.DatabaseMoved(
                login=getuser(),
                rows=rows,
                old_engine=_get_engine_name(old),
                new_engine=_get_engine_name(new),
            ),
        )
        entries, head = change_log.get_head(tx)
    return CopyResult(rows, entries, head)


def _get_engine_name(database: Database) -> str:
    return "SQLite" if database.embedded else "PostgreSQL"
