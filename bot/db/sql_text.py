"""Statements whose SQL is written out: searches that choose the index to walk."""

from collections.abc import Mapping, Sequence
from typing import Any

from bot.db.condition import bind_text
from bot.db.database import Transaction


def fetch_rows(tx: Transaction, sql: str, given: Mapping[str, object]) -> Sequence[Any]:
    """Return the rows that a statement finds. sql, given: as bind_text takes them."""
    return tx.sql.execute(bind_text(sql, given)).all()


def fetch_scalar(tx: Transaction, sql: str, given: Mapping[str, object]) -> Any:
    """Return the first value of the first row, None without one."""
    return tx.sql.execute(bind_text(sql, given)).scalar()


def each_value_sql(table: str, column: str, begin: str = "", end: str = "") -> str:
    """Return SQL for each value of a column once, by one step of its index for each.

    begin, end: SQL that bounds them.
    """
    return (
        f"WITH RECURSIVE known(one) AS (SELECT min({column}) FROM {table} {begin} UNION ALL "  # noqa: S608 - ours
        f"SELECT (SELECT min({table}.{column}) FROM {table} "
        f"WHERE {table}.{column} > known.one {end}) "
        "FROM known WHERE known.one IS NOT NULL) SELECT one FROM known WHERE one IS NOT NULL"
    )


def list_parameter_sql(tx: Transaction, name: str) -> str:
    """Return SQL for the members of a JSON list of texts that is given by this name.

    It is one value however many they are: drivers take only so many, and areas hold many hosts.
    """
    if tx.embedded:
        return f"SELECT value FROM json_each(:{name})"  # noqa: S608 - ours
    return f"SELECT json_array_elements_text(CAST(:{name} AS json))"


def list_number_sql(tx: Transaction, name: str) -> str:
    """Return SQL for the members of a JSON list of numbers that is given by this name."""
    if tx.embedded:
        return list_parameter_sql(tx, name)
    return f"SELECT CAST(json_array_elements_text(CAST(:{name} AS json)) AS INTEGER)"
