"""Moving an installation to another database, with its chain intact."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from getpass import getuser
from itertools import islice

from sqlalchemy import Table, func, insert, inspect, select, text

from bot.audit import change_log, verification
from bot.db import migrations, tables
from bot.db.database import Database, Transaction
from bot.model.progress import BeginStage, ReportProgress, begin_silent_stage, ignore_progress

_AT_ONCE = 2_000
# What is put down in one go is not hung up on for being much.
SECONDS = 3600.0
# Tables of those that make our tables, or dispatch our work.
_OTHERS = ("alembic_", "procrastinate_", "sqlite_")

_ON_SQLITE = [
    text("DELETE FROM sqlite_sequence WHERE name = :table"),
    text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)"),
]
_ON_POSTGRESQL = text("SELECT setval(pg_get_serial_sequence(:table, 'id'), :next, false)")


class CopyError(Exception):
    """There is something here, or there, that a copy cannot be made of, or over."""


def list_tables() -> list[Table]:
    """Return our tables, each behind those that it refers to."""
    return tables.metadata.sorted_tables


def count_rows(source: Database) -> int:
    """Return how many rows a copy will have, to show how far it is."""
    with source.reading() as tx:
        return sum(_count(tx, table) for table in list_tables())


def copy_rows(source: Database, tx: Transaction, told: ReportProgress = ignore_progress) -> int:
    """Put every row of *source* down in the caller's transaction; return how many there were.

    told: how many more rows were copied. Raises CopyError where *source* has a table that this
    version does not know, or the other database is not empty.
    """
    _refuse_strangers(source)
    _refuse_over(tx)
    copied = 0
    with source.reading() as there:
        for table in list_tables():
            for rows in _batches(there, table):
                tx.sql.execute(insert(table), rows)
                copied += len(rows)
                told(len(rows))
            highest = _highest(tx, table)
            if highest:
                set_next_number(tx, table.name, highest + 1)
    return copied


def set_next_number(tx: Transaction, table: str, number: int) -> None:
    """Let the next row of a table that numbers its own have this number."""
    if tx.sql.dialect.name == "postgresql":
        tx.sql.execute(_ON_POSTGRESQL, {"next": number, "table": table})
    elif tables.metadata.tables[table].dialect_options["sqlite"]["autoincrement"]:
        for statement in _ON_SQLITE:
            tx.sql.execute(statement, {"last": number - 1, "table": table})


def _batches(there: Transaction, table: Table) -> Generator[list[dict[str, object]]]:
    query = select(table).order_by(*table.primary_key.columns)
    with closing(there.sql.execute(query.execution_options(yield_per=_AT_ONCE))) as found:
        rows = found.mappings()
        while some := [dict(row) for row in islice(rows, _AT_ONCE)]:
            yield some


def _refuse_strangers(source: Database) -> None:
    known = {table.name for table in list_tables()}
    there = inspect(source.engine).get_table_names()
    strange = sorted(name for name in there if name not in known and not name.startswith(_OTHERS))
    if strange:
        raise CopyError(f"it holds {', '.join(strange)}, which this version does not know")


def _refuse_over(tx: Transaction) -> None:
    full = [
        table.name for table in list_tables() if tx.sql.execute(select(table).limit(1)).first()
    ]
    if full:
        raise CopyError(f"there is something already, in {', '.join(full)}: take an empty one")


def _highest(tx: Transaction, table: Table) -> int | None:
    column = table.autoincrement_column
    if column is None or column.name != "id":
        return None
    return tx.sql.execute(select(func.max(column))).scalar()


def _count(tx: Transaction, table: Table) -> int:
    return tx.sql.execute(select(func.count()).select_from(table)).scalar_one()


MOVED = "database moved"


@dataclass(frozen=True)
class CopyResult:
    """rows: how many there were. entries, head: how far the log is, the move itself included."""

    rows: int
    entries: int
    head: str


def copy_database(
    old: Database, new: Database, stages: BeginStage = begin_silent_stage
) -> CopyResult:
    """Copy everything into *new*, which is empty, and say so in its log. Nobody may be at work.

    A log that is broken is not moved: what is wrong with it is to be found out where it is.
    Raises CopyError, BadKey and StoreUnavailable; then *new* is as empty as it was.
    """
    migrations.upgrade_schema(new)
    with old.reading() as tx:
        before = verification.verify_log(tx, stages=stages)
    if before.broken is not None:
        raise CopyError(f"its change log is broken at entry {before.broken}: {before.why}")
    with new.transaction(seconds=SECONDS) as tx:
        with stages("copying", lambda: count_rows(old)) as told:
            rows = copy_rows(old, tx, told)
        verification.open_log(tx)
        after = verification.verify_log(tx, stages=stages)
        if (after.entries, after.head, after.broken) != (before.entries, before.head, None):
            raise CopyError("the log that arrived is not the one that was sent")
        change_log.append_entry(
            tx, MOVED, login=getuser(), rows=rows, from_=_kind(old), to=_kind(new)
        )
        entries, head = change_log.get_head(tx)
    return CopyResult(rows, entries, head)


def _kind(database: Database) -> str:
    return "SQLite" if database.embedded else "PostgreSQL"
