"""The wire to a database: its driver asked at once, where SQLAlchemy would take most of the time.

What needs no answer of PostgreSQL is kept back and goes with what is asked next: the beginning
with the first question, and what is written most often with the commit. Each answer that nobody
waits for is a journey less. The driver is watched, and
what goes wrong is told, as if SQLAlchemy had asked it.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from bot.store.watch import Watch

# So many rows are asked of the server at once.
_AT_ONCE = 2000
_CURSOR = "all_rows"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


# A statement as the driver takes it, and its values.
_Told = tuple[str, Any]


class Wire:
    """One connection's driver. SQLAlchemy uses it too, by `sqlalchemy`."""

    def __init__(self, connection: Connection, watch: Watch) -> None:
        self.connection, self._watch = connection, watch
        self._dialect = connection.dialect.name
        self.embedded = self._dialect == "sqlite"
        self._kept: list[_Told] = []
        # How to begin, as long as we have not.
        self._beginning = ""
        self._now = 0

    @property
    def sqlalchemy(self) -> Connection:
        """The connection, which is told first what was kept back."""
        self._catch_up()
        return self.connection

    @cached_property
    def driver(self) -> Any:
        """The driver's own connection: sqlite3's, or psycopg's."""
        return self.connection.connection.driver_connection

    def begin(self, how: str) -> None:
        """Begin as PostgreSQL says it, by the journey of whatever is asked first."""
        self._beginning = how

    @property
    def now(self) -> int:
        """PostgreSQL's time when it began, in microseconds since 1970."""
        self._catch_up()
        return self._now

    def row(self, spelled: Mapping[str, str], values: Sequence[object] = ()) -> Any:
        """Do one statement; return its first row, None without one. spelled: by the dialect."""
        return next(iter(self.rows(spelled[self._dialect], values)), None)

    def rows(self, statement: str, values: Any) -> list[tuple[Any, ...]]:
        """Do one statement as this driver takes it; return its rows."""
        return self._done([(statement, values)])[0].fetchall()

    def rows_of_each(self, asked: Sequence[_Told]) -> list[list[tuple[Any, ...]]]:
        """Do several statements that do not need each other's answers; return the rows of each."""
        # To the end: what is left half read would keep SQLite's transaction from its own.
        return [cursor.fetchall() for cursor in self._done(asked)]

    def do(self, statement: str, values: Any) -> int:
        """Do one statement as this driver takes it; return how many rows it was done to."""
        return self._done([(statement, values)])[0].rowcount

    @contextmanager
    def all_rows(self, statement: str) -> Generator[Iterable[tuple[Any, ...]]]:
        """Do one statement without values; its rows are read as they are iterated over."""
        if self.embedded:
            with closing(self.driver.execute(statement)) as rows:
                yield rows
            return
        self._catch_up()
        with self.driver.cursor(_CURSOR) as cursor:
            cursor.itersize = _AT_ONCE
            with self._asking():
                cursor.execute(statement)
            yield cursor

    def tell(self, spelled: Mapping[str, str], values: Sequence[object]) -> None:
        """Do one statement before anything else is done, or committed: that fails if it does."""
        if self.embedded:
            self.driver.execute(spelled["sqlite"], values)
        else:
            self._kept.append((spelled[self._dialect], values))

    def commit(self) -> None:
        """Make durable what was written, by SQLAlchemy too."""
        begun = not self._beginning or self._kept
        if not self.embedded and begun:
            self._done([("COMMIT", None)])
        self.connection.commit()
        # SQLAlchemy knows of no transaction that it was asked nothing in.
        if self.embedded and self.driver.in_transaction:
            self.driver.commit()

    def roll_back(self) -> None:
        """Let go of what was read, and write nothing."""
        self._kept, self._beginning = [], ""
        self.connection.rollback()
        if not self.embedded:
            with self._asking() as driver:
                driver.rollback()

    def _catch_up(self) -> None:
        """Tell PostgreSQL what was kept back, if anything was."""
        if self._kept or self._beginning:
            self._done([])

    def _done(self, asked: Sequence[_Told]) -> list[Any]:
        """Do what was kept back, and this, and wait once; return a cursor for each of this."""
        if self.embedded:
            return [self.driver.execute(statement, values) for statement, values in asked]
        told, self._kept = [*self._kept, *asked], []
        with self._asking() as driver:
            done = self._begun(driver, told) if self._beginning else _together(driver, told)
        return done[len(told) - len(asked) :]

    def _begun(self, driver: Any, told: Sequence[_Told]) -> list[Any]:
        """Begin, and do this along with it."""
        how, self._beginning = self._beginning, ""
        if not any(values or "%" in statement for statement, values in told[:1]) and not told[1:]:
            # By one message. What has several statements cannot be prepared.
            words = "; ".join([how, _NOW, *(statement for statement, _ in told)])
            found = driver.execute(words, prepare=False)
            found.nextset()
            self._now = found.fetchone()[0]
            found.nextset()
            return [found]
        _, now, *done = _together(driver, [(how, None), (_NOW, None), *told])
        self._now = now.fetchone()[0]
        return done

    @contextmanager
    def _asking(self) -> Generator[Any]:
        base, driver = self.connection.dialect.loaded_dbapi.Error, self.driver
        with self._watch.asking(self.connection):
            try:
                yield driver
            except base as error:
                if driver.closed:
                    self.connection.invalidate(error)
                raise DBAPIError.instance(None, None, error, base) from error


def _together(driver: Any, told: Sequence[_Told]) -> list[Any]:
    """Do all of it by one journey; return a cursor for each."""
    if len(told) == 1:
        return [driver.execute(*told[0])]
    with driver.pipeline():
        return [driver.execute(statement, values) for statement, values in told]
