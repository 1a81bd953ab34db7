"""The wire to a database: its driver asked at once, where SQLAlchemy would take most of the time.

What needs no answer of PostgreSQL is kept back and goes with what is asked next, which is most
often the commit: each answer that nobody waits for is a journey less. The driver is watched, and
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


class Wire:
    """One connection's driver. SQLAlchemy uses it too, by `sqlalchemy`."""

    def __init__(self, connection: Connection, watch: Watch) -> None:
        self.connection, self._watch = connection, watch
        self._dialect = connection.dialect.name
        self.embedded = self._dialect == "sqlite"
        self._kept: list[tuple[str, Sequence[object]]] = []

    @property
    def sqlalchemy(self) -> Connection:
        """The connection, which is told first what was kept back."""
        self._catch_up()
        return self.connection

    @cached_property
    def driver(self) -> Any:
        """The driver's own connection: sqlite3's, or psycopg's."""
        return self.connection.connection.driver_connection

    def begin(self, how: str) -> int:
        """Begin as PostgreSQL says it; return its time, in microseconds since 1970."""
        with self._asking() as driver:
            # By one message. What has two statements cannot be prepared.
            answers = driver.execute(f"{how}; {_NOW}", prepare=False)
            answers.nextset()
            return answers.fetchone()[0]

    def row(self, spelled: Mapping[str, str], values: Sequence[object] = ()) -> Any:
        """Do one statement; return its first row, None without one. spelled: by the dialect."""
        return next(iter(self.rows(spelled[self._dialect], values)), None)

    def rows(self, statement: str, values: Any) -> list[tuple[Any, ...]]:
        """Do one statement as this driver takes it; return its rows."""
        if self.embedded:
            # To the end: what is left half read would keep the transaction from its own.
            return self.driver.execute(statement, values).fetchall()
        self._catch_up()
        with self._asking() as driver:
            return driver.execute(statement, values).fetchall()

    def rows_of_each(self, asked: Sequence[tuple[str, Any]]) -> list[list[tuple[Any, ...]]]:
        """Do several statements that do not need each other's answers; return the rows of each."""
        if self.embedded:
            return [self.rows(statement, values) for statement, values in asked]
        self._catch_up()
        with self._asking() as driver:
            with driver.pipeline():
                cursors = [driver.execute(statement, values) for statement, values in asked]
            return [cursor.fetchall() for cursor in cursors]

    def do(self, statement: str, values: Any) -> int:
        """Do one statement as this driver takes it; return how many rows it was done to."""
        self._catch_up()
        if self.embedded:
            return self.driver.execute(statement, values).rowcount
        with self._asking() as driver:
            return driver.execute(statement, values).rowcount

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
        if not self.embedded:
            self._send("COMMIT")
        self.connection.commit()
        # SQLAlchemy knows of no transaction that it was asked nothing in.
        if self.embedded and self.driver.in_transaction:
            self.driver.commit()

    def roll_back(self) -> None:
        """Let go of what was read, and write nothing."""
        self._kept.clear()
        self.connection.rollback()
        if not self.embedded:
            with self._asking() as driver:
                driver.rollback()

    def _catch_up(self) -> None:
        """Tell PostgreSQL what was kept back, if anything was."""
        if self._kept:
            self._send()

    def _send(self, *more: str) -> None:
        """Tell PostgreSQL all of it, and wait once."""
        kept, self._kept = self._kept, []
        with self._asking() as driver, driver.pipeline():
            for statement, values in kept:
                driver.execute(statement, values)
            for statement in more:
                driver.execute(statement)

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
