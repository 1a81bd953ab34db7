"""The wire to a database: its driver asked at once, where SQLAlchemy would take most of the time.

What needs no answer of PostgreSQL is kept back and goes with what is asked next: the beginning
with the first question, and what is written most often with the commit. Each answer that nobody
waits for is a journey less. The driver is watched, and what goes wrong is told, as if SQLAlchemy
had asked it.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from bot.db.statement import Answer, Statement
from bot.db.statement_timeout import NEVER, StatementTimeout

if TYPE_CHECKING:
    from bot.db.pipeline import Pipeline

# So many rows are asked of the server at once.
_AT_ONCE = 2000
_CURSOR = "all_rows"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# How reading ends.
_NOT_KEPT = "ROLLBACK"
# Where a connection has its pipe.
PIPE = "pipe"


class Wire:
    """One connection's driver. SQLAlchemy uses it too, by `sqlalchemy`."""

    def __init__(self, connection: Connection, watch: StatementTimeout) -> None:
        self.connection, self._watch = connection, watch
        self._dialect = connection.dialect.name
        self.embedded = self._dialect == "sqlite"
        self._kept: list[Statement] = []
        # How to begin, as long as we have not.
        self._beginning = ""
        # Whether what was read came to its end, and nothing can be asked any more.
        self._over = False
        self._now = 0

    @property
    def sqlalchemy(self) -> Connection:
        """The connection, which is told first what was kept back."""
        self._check_goes_on()
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

    def rows(self, words: str, values: Any, *, by_heart: bool = True) -> list[tuple[Any, ...]]:
        """Do one statement as this driver takes it; return its rows."""
        return self._done([Statement(words, values, by_heart)])[0].rows

    def of_each(self, asked: Sequence[Statement], *, last: bool = False) -> list[Answer]:
        """Do several statements that do not need each other's answers.

        last: whoever reads asks nothing after them: the end of that goes by the same journey.
        """
        if self.embedded or not last:
            return self._done(asked)
        *answers, ended = self._done([*asked, Statement(_NOT_KEPT)])
        self._over = True
        _check_end(_NOT_KEPT, ended)
        return answers

    def do(self, words: str, values: Any) -> int:
        """Do one statement as this driver takes it; return how many rows it was done to."""
        return self._done([Statement(words, values)])[0].touched

    @contextmanager
    def all_rows(self, statement: str) -> Generator[Iterable[tuple[Any, ...]]]:
        """Do one statement without values; its rows are read as they are iterated over."""
        if self.embedded:
            with closing(self.driver.execute(statement)) as rows:
                yield rows
            return
        self._check_goes_on()
        self._catch_up()
        with self.driver.cursor(_CURSOR) as cursor:
            cursor.itersize = _AT_ONCE
            with self._asking():
                cursor.execute(statement)
            yield cursor

    def tell(self, statement: Statement) -> None:
        """Do it before anything else is done, or committed: that fails if it does."""
        if self.embedded:
            self._done_here(statement)
        else:
            self._kept.append(statement)

    def commit(self) -> None:
        """Make durable what was written, by SQLAlchemy too."""
        begun = not self._beginning or self._kept
        if not self.embedded and begun:
            self._end("COMMIT")
        self.connection.commit()
        # SQLAlchemy knows of no transaction that it was asked nothing in.
        if self.embedded and self.driver.in_transaction:
            self.driver.commit()

    def roll_back(self) -> None:
        """Let go of what was read, and write nothing."""
        begun, self._kept, self._beginning = not self._beginning, [], ""
        if not self.embedded and begun and not self._over:
            self._end(_NOT_KEPT)
        self.connection.rollback()

    def _check_goes_on(self) -> None:
        if self._over:
            raise SQLAlchemyError("something is asked after what was said to be the last of it")

    def _end(self, how: str) -> None:
        _check_end(how, self._done([Statement(how)])[0])

    def _catch_up(self) -> None:
        """Tell PostgreSQL what was kept back, if anything was."""
        if self._kept or self._beginning:
            self._done([])

    def _done(self, asked: Sequence[Statement]) -> list[Answer]:
        """Do what was kept back, and this, and wait once; return what came of each of this."""
        if self.embedded:
            return [self._done_here(statement) for statement in asked]
        self._check_goes_on()
        if self._beginning and not all(statement.by_heart for statement in asked):
            # A server that does not answer is given up sooner than one that looks far and wide.
            self._done([])
        told, self._kept = [*self._kept, *asked], []
        if self._beginning:
            answers = self._begun(told)
        else:
            with self._asking():
                answers = self._pipe.done(told)
        return answers[len(told) - len(asked) :]

    def _done_here(self, statement: Statement) -> Answer:
        """Do it on SQLite."""
        cursor = self.driver.execute(statement.words, statement.values)
        # To the end: what is left half read would keep the transaction from its own.
        return Answer(cursor.fetchall(), cursor.rowcount)

    def _begun(self, told: Sequence[Statement]) -> list[Answer]:
        """Begin, and do this along with it: in no time, or the server does not answer at all."""
        how, self._beginning = self._beginning, ""
        with self._asking(most=self._watch.seconds):
            _, now, *answers = self._pipe.done([Statement(how), Statement(_NOW), *told])
        self._now = now.rows[0][0]
        return answers

    @property
    def _pipe(self) -> "Pipeline":
        """PostgreSQL's pipe, which lasts as long as the connection."""
        from bot.db.pipeline import Pipeline

        kept = self.connection.info
        if PIPE not in kept:
            kept[PIPE] = Pipeline(self.driver)
        return kept[PIPE]

    @contextmanager
    def _asking(self, *, most: float = NEVER) -> Generator[None]:
        base = self.connection.dialect.loaded_dbapi.Error
        self._watch.begins(self.connection, most=most)
        try:
            yield
        except base as error:
            if self.driver.closed:
                self.connection.invalidate(error)
            raise DBAPIError.instance(None, None, error, base) from error
        finally:
            self._watch.ends(self.connection)


def _check_end(how: str, answer: Answer) -> None:
    if answer.did != how:
        # Something failed, and somebody went on as if it had not.
        raise SQLAlchemyError(f"the transaction was to end by {how} and ended by {answer.did}")
