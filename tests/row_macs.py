"""Rows with a MAC, altered as if Keyturn had written them at another time."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Table, select, update

from bot.auth import row_mac
from bot.db.database import Transaction


def change_rows(tx: Transaction, table: Table, how: Callable[[Any], Mapping[str, object]]) -> None:
    """Have every row of a table say something else, with the stamp that it has then."""
    key = list(table.primary_key.columns)
    for row in tx.sql.execute(select(table)).all():
        here = [column == getattr(row, column.name) for column in key]
        new = row_mac.amend_with_mac(tx, table, row, how(row))
        tx.sql.execute(update(table).where(*here).values(new))
