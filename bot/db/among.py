"""Among: a statement about several numbers or names, the same one however many they are."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, any_, bindparam, func, select
from sqlalchemy.dialects.postgresql import ARRAY

from bot.db.database import Transaction
from bot.db.prepared import PreparedStatement


def among(query: Select[*tuple[Any, ...]], column: Any) -> PreparedStatement:
    """Return the statement that finds the rows whose column is one of `wanted`."""
    listed = func.json_each(bindparam("wanted")).table_valued("value", name="one")
    array = bindparam("wanted", type_=ARRAY(column.type))
    return PreparedStatement(
        query.where(column == any_(array)), sqlite=query.where(column.in_(select(listed.c.value)))
    )


def as_one(tx: Transaction, wanted: Sequence[int] | Sequence[str]) -> object:
    """Return them as one value, as the database takes it."""
    text = json.dumps(list(wanted))
    # PostgreSQL reads an array sooner than its driver writes one.
    return text if tx.embedded else f"{{{text[1:-1]}}}"
