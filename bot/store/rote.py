"""Rote: statements that every step of every run takes, put together once and known by heart.

On SQLite the driver itself does them: of each, SQLAlchemy would take most of the time, and of a
wave of hosts most of the work. PostgreSQL is asked through it, since it has to be watched.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from sqlalchemy import Executable
from sqlalchemy.dialects import sqlite

from bot.store.database import Transaction

_DIALECT = sqlite.dialect(paramstyle="qmark")
# Of nothing but columns of this house's tables, by their names.
_Row = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class _Spelled:
    """A statement as SQLite's driver takes it. places: of each value, its name.

    given: values that stand in the statement itself. row: makes what comes back of one.
    """

    text: str
    places: Sequence[str]
    given: Mapping[str, Any]
    row: _Row

    def values(self, told: Mapping[str, Any]) -> list[Any]:
        given = self.given
        return [told[name] if name in told else given[name] for name in self.places]


class Rote:
    """A statement. Its values are given by the names that it binds, an insert's by its columns."""

    def __init__(self, statement: Executable, sqlite: Executable | None = None) -> None:
        """Learn it. sqlite: the same in SQLite's own words, where those are others."""
        self._statement, self._on_sqlite = statement, sqlite if sqlite is not None else statement

    def rows(self, tx: Transaction, **values: Any) -> Sequence[Any]:
        """Do it and return all its rows, each with its columns by name."""
        if not tx.embedded:
            return tx.sql.execute(self._statement, values).all()
        spelled = self._spelled
        found = tx.driver.execute(spelled.text, spelled.values(values)).fetchall()
        return [spelled.row(row) for row in found]

    def row(self, tx: Transaction, **values: Any) -> Any:
        """Do it and return its first row, None without one."""
        if not tx.embedded:
            return tx.sql.execute(self._statement, values).first()
        spelled = self._spelled
        # To the end: what is left half read would keep the transaction from its own.
        found = tx.driver.execute(spelled.text, spelled.values(values)).fetchall()
        return spelled.row(found[0]) if found else None

    def do(self, tx: Transaction, **values: Any) -> int:
        """Do it and return how many rows it was done to."""
        if not tx.embedded:
            return tx.sql.execute(self._statement, values).rowcount
        spelled = self._spelled
        return tx.driver.execute(spelled.text, spelled.values(values)).rowcount

    def do_all(self, tx: Transaction, told: Sequence[Mapping[str, Any]]) -> int:
        """Do it with each of these values; return how many rows it was done to in all."""
        if not told:
            return 0
        if not tx.embedded:
            return tx.sql.execute(self._statement, told).rowcount
        spelled = self._spelled
        values = [spelled.values(values) for values in told]
        return tx.driver.executemany(spelled.text, values).rowcount

    @cached_property
    def _spelled(self) -> _Spelled:
        # SQLAlchemy says nothing of what a dialect makes of a statement in its types.
        made = cast("Any", self._on_sqlite).compile(dialect=_DIALECT)
        given = {name: value for name, value in made.params.items() if value is not None}
        row = _row_of(made._result_columns)
        return _Spelled(str(made), made.positiontup or (), given, row)


def _row_of(columns: Sequence[Any]) -> _Row:
    names = [str(column.keyname) for column in columns]
    # The columns are known here only, and so are their types.
    made = namedtuple("Learnt", names)._make  # pyright: ignore[reportUntypedNamedTuple] - see above
    read = [column.type.result_processor(_DIALECT, None) for column in columns]
    wanted = [(place, how) for place, how in enumerate(read) if how is not None]
    if not wanted:
        return made

    def converted(row: Sequence[Any]) -> Any:
        values = list(row)
        for place, how in wanted:
            values[place] = how(values[place])
        return made(values)

    return converted
