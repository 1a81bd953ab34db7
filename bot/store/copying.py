"""Copying all that a database holds into another, which may be of the other kind.

The rows are taken from one state, whoever writes meanwhile, and put down in one transaction: the
copy is whole or is not there. Only tables of ours are copied; what an engine keeps for itself, and
which schema there is, is the other database's own.
"""

from collections.abc import Generator
from contextlib import closing
from itertools import islice

from sqlalchemy import Table, func, insert, inspect, select, text

from bot.store import families
from bot.store.database import Database, Transaction
from bot.store.stages import Told, nobody

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


class NotCopied(Exception):
    """There is something here, or there, that a copy cannot be made of, or over."""


def every() -> list[Table]:
    """Return our tables, each behind those that it refers to."""
    return families.metadata.sorted_tables


def size(source: Database) -> int:
    """Return how many rows a copy will have, to show how far it is."""
    with source.reading() as tx:
        return sum(_count(tx, table) for table in every())


def copy(source: Database, tx: Transaction, told: Told = nobody) -> int:
    """Put every row of *source* down in the caller's transaction; return how many there were.

    told: how many more rows were copied. Raises NotCopied where *source* has a table that this
    version does not know, or the other database is not empty.
    """
    _refuse_strangers(source)
    _refuse_over(tx)
    copied = 0
    with source.reading() as there:
        for table in every():
            for rows in _batches(there, table):
                tx.sql.execute(insert(table), rows)
                copied += len(rows)
                told(len(rows))
            highest = _highest(tx, table)
            if highest:
                number_from(tx, table.name, highest + 1)
    return copied


def number_from(tx: Transaction, table: str, number: int) -> None:
    """Let the next row of a table that numbers its own have this number."""
    if tx.sql.dialect.name == "postgresql":
        tx.sql.execute(_ON_POSTGRESQL, {"next": number, "table": table})
    elif families.metadata.tables[table].dialect_options["sqlite"]["autoincrement"]:
        for statement in _ON_SQLITE:
            tx.sql.execute(statement, {"last": number - 1, "table": table})


def _batches(there: Transaction, table: Table) -> Generator[list[dict[str, object]]]:
    query = select(table).order_by(*table.primary_key.columns)
    with closing(there.sql.execute(query.execution_options(yield_per=_AT_ONCE))) as found:
        rows = found.mappings()
        while some := [dict(row) for row in islice(rows, _AT_ONCE)]:
            yield some


def _refuse_strangers(source: Database) -> None:
    known = {table.name for table in every()}
    there = inspect(source.engine).get_table_names()
    strange = sorted(name for name in there if name not in known and not name.startswith(_OTHERS))
    if strange:
        raise NotCopied(f"it holds {', '.join(strange)}, which this version does not know")


def _refuse_over(tx: Transaction) -> None:
    full = [table.name for table in every() if tx.sql.execute(select(table).limit(1)).first()]
    if full:
        raise NotCopied(f"there is something already, in {', '.join(full)}: take an empty one")


def _highest(tx: Transaction, table: Table) -> int | None:
    column = table.autoincrement_column
    if column is None or column.name != "id":
        return None
    return tx.sql.execute(select(func.max(column))).scalar()


def _count(tx: Transaction, table: Table) -> int:
    return tx.sql.execute(select(func.count()).select_from(table)).scalar_one()
