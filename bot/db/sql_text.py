"""Statements that are put together for one question, in SQL that is the same on both databases."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from bot.db.database import Transaction
from bot.db.statement import Statement

_NAMED = re.compile(r":(\w+)")


def fetch_rows(tx: Transaction, sql: str, given: Mapping[str, object]) -> Sequence[Any]:
    """Return what the driver itself finds: putting a statement together anew for each page would
    take longer than finding it. sql: its values as `:name`."""
    (answer,) = tx.wire.of_each([build_query(tx, sql, given)])
    return answer.rows


def build_query(tx: Transaction, sql: str, given: Mapping[str, object]) -> Statement:
    """Return it as what to ask beside other things."""
    # Planned for what is asked: a plan for any value would walk the wrong index for many.
    return Statement(sql if tx.embedded else _as_postgresql(sql), given, by_heart=False)


@lru_cache(1024)
def _as_postgresql(sql: str) -> str:
    return _NAMED.sub(r"%(\1)s", sql)


def fetch_scalar(tx: Transaction, sql: str, given: Mapping[str, object]) -> Any:
    """Return the first value of the first row, None without one."""
    found = fetch_rows(tx, sql, given)
    return found[0][0] if found else None


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
    """Return SQL for the members of a JSON list of texts that is given by this name."""
    if tx.embedded:
        return f"SELECT value FROM json_each(:{name})"  # noqa: S608 - ours
    return f"SELECT json_array_elements_text(CAST(:{name} AS json))"
