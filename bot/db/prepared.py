"""Rote: statements that every step of every run takes, put together once and known by heart.

The driver itself does them: of each, SQLAlchemy would take most of the time, and of a wave of
hosts most of the work.
"""

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import Executable
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import psycopg

from bot.db.database import Transaction
from bot.db.statement import Statement

_SQLITE = sqlite.dialect(paramstyle="qmark")
_POSTGRESQL = psycopg.dialect()
# Of nothing but columns of this house's tables, by their names.
_Row = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class _Spelled:
    """A statement as a driver takes it. places: of each value, its name; None where the driver
    takes them by their names.

    given: values that stand in the statement itself. row: makes what comes back of one.
    """

    text: str
    places: Sequence[str] | None
    given: Mapping[str, Any]
    row: _Row

    def values(self, told: Mapping[str, Any]) -> Any:
        given = self.given
        if self.places is None:
            return {**given, **told}
        return [told[name] if name in told else given[name] for name in self.places]

    def values_of_each(self, told: Iterable[Mapping[str, Any]]) -> Iterable[Any]:
        """Do so with several, all of whose values are told, or none of those that stand in it."""
        if self.given or self.places is None or len(self.places) < 2:
            return map(self.values, told)
        return map(itemgetter(*self.places), told)


class PreparedStatement:
    """A statement. Its values are given by the names that it binds, an insert's by its columns."""

    def __init__(self, statement: Executable, sqlite: Executable | None = None) -> None:
        """Learn it. sqlite: the same in SQLite's own words, where those are others."""
        self._statement, self._on_sqlite = statement, sqlite if sqlite is not None else statement

    def rows(self, tx: Transaction, **values: Any) -> Sequence[Any]:
        """Do it and return all its rows, each with its columns by name."""
        spelled = self.spelled(tx)
        return [spelled.row(row) for row in tx.wire.rows(spelled.text, spelled.values(values))]

    def asked(self, **values: Any) -> "Asked":
        """Return it with its values, to be done beside others."""
        return self, values

    def row(self, tx: Transaction, **values: Any) -> Any:
        """Do it and return its first row, None without one."""
        spelled = self.spelled(tx)
        found = tx.wire.rows(spelled.text, spelled.values(values))
        return spelled.row(found[0]) if found else None

    def do(self, tx: Transaction, **values: Any) -> int:
        """Do it and return how many rows it was done to."""
        spelled = self.spelled(tx)
        return tx.wire.do(spelled.text, spelled.values(values))

    def tell(self, tx: Transaction, **values: Any) -> None:
        """Do it, and wait for nothing: what is asked next, or the commit, fails if it does."""
        spelled = self.spelled(tx)
        tx.wire.tell(Statement(spelled.text, spelled.values(values)))

    def tell_all(self, tx: Transaction, told: Sequence[Mapping[str, Any]]) -> None:
        """Do so with each of these values."""
        if tx.embedded:
            self.do_all(tx, told)
            return
        for values in told:
            self.tell(tx, **values)

    def do_all(self, tx: Transaction, told: Sequence[Mapping[str, Any]]) -> int:
        """Do it with each of these values; return how many rows it was done to in all."""
        if not told:
            return 0
        spelled = self.spelled(tx)
        values = [*spelled.values_of_each(told)]
        if tx.embedded:
            return tx.driver.executemany(spelled.text, values).rowcount
        answers = tx.wire.of_each([Statement(spelled.text, one) for one in values])
        return sum(answer.touched for answer in answers)

    def do_rows(self, tx: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
        """Do it on SQLite with each of these rows, whose values stand in its columns' order."""
        tx.driver.executemany(self._for_sqlite.text, rows)

    def spelled(self, tx: Transaction) -> _Spelled:
        """Return it as the driver of this database takes it."""
        return self._for_sqlite if tx.embedded else self._for_postgresql

    @cached_property
    def _for_sqlite(self) -> _Spelled:
        return _spelled(self._on_sqlite, _SQLITE)

    @cached_property
    def _for_postgresql(self) -> _Spelled:
        return _spelled(self._statement, _POSTGRESQL)


Asked = tuple[PreparedStatement, Mapping[str, Any]]


def rows_of_each(tx: Transaction, *asked: Asked, last: bool = False) -> list[list[Any]]:
    """Do statements that do not need each other's answers, by one journey to the database.

    last: nothing is asked after them.
    """
    spelled = [(rote.spelled(tx), values) for rote, values in asked]
    told = [Statement(one.text, one.values(values)) for one, values in spelled]
    found = tx.wire.of_each(told, last=last)
    both = zip(spelled, found, strict=True)
    return [[one.row(row) for row in answer.rows] for (one, _), answer in both]


def _spelled(statement: Executable, dialect: Any) -> _Spelled:
    # SQLAlchemy says nothing of what a dialect makes of a statement in its types.
    made = cast("Any", statement).compile(dialect=dialect)
    given = {name: value for name, value in made.params.items() if value is not None}
    row = _row_of(made._result_columns, dialect)
    return _Spelled(str(made), made.positiontup, given, row)


def _row_of(columns: Sequence[Any], dialect: Any) -> _Row:
    names = [str(column.keyname) for column in columns]
    # The columns are known here only, and so are their types.
    made = namedtuple("Learnt", names)._make  # pyright: ignore[reportUntypedNamedTuple] - see above
    read = [column.type.result_processor(dialect, None) for column in columns]
    wanted = [(place, how) for place, how in enumerate(read) if how is not None]
    if not wanted:
        return made

    def converted(row: Sequence[Any]) -> Any:
        values = list(row)
        for place, how in wanted:
            values[place] = how(values[place])
        return made(values)

    return converted
