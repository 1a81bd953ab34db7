"""The database: one engine, short transactions, and the same clock for everybody."""

import fcntl
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    extract,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from bot.db import data_directory
from bot.db.commits import Busy, Commits
from bot.db.condition import Condition
from bot.db.events import RunEvents
from bot.db.statement_timeout import StatementTimeout
from bot.model.redaction import Redactor
from bot.model.signing import SigningKey
from bot.model.view_rights import ViewRights

# So many connections are kept, and so many more are made where all are in use.
_KEPT, _MORE = 16, 16
# Whoever holds a lock for too long is told of by the server, before it is hung up on itself.
_LOCKED_MILLISECONDS = 1_750


def open_sqlite(url: str, *, patience: int, busy: int) -> Engine:
    """patience: seconds that it may take to answer. busy: that one may wait for a connection."""
    engine = create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        pool_size=_KEPT,
        max_overflow=_MORE,
        pool_timeout=busy,
    )

    @event.listens_for(engine, "do_connect")
    def _make(_dialect: object, _record: object, given: list[Any], _named: object) -> None:
        data_directory.make_database_file(given[0])

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            # What is erased is overwritten.
            "secure_delete=ON",
            f"busy_timeout={patience * 1000}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        how = connection.get_execution_options().get(_BEGIN)
        if how:
            connection.exec_driver_sql(how)

    return engine


def open_postgresql(url: str, *, patience: int, busy: int) -> Engine:
    """patience, busy: as above."""
    return create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        pool_size=_KEPT,
        max_overflow=_MORE,
        pool_timeout=busy,
        # Whether a connection is still good is asked by the watch, and not by `pool_pre_ping`: a
        # log that does not answer is a log that cannot be written, and nobody waits for it.
        connect_args={
            # A plan for any value would walk the wrong index for many of them.
            "prepare_threshold": None,
            "connect_timeout": patience,
            "tcp_user_timeout": 2 * busy * 1000,
            # To compile what takes milliseconds would take longer than it.
            "options": f"-c lock_timeout={_LOCKED_MILLISECONDS} -c jit=off",
        },
    )


log = logging.getLogger(__name__)

_BUSY_SECONDS = 5
# A database that is blocked counts as one that failed: nobody waits for it longer than this.
_BLOCKED_SECONDS = 2
# Reading may take longer: an export, or a search through years.
_READING_SECONDS = 60
# The option of a connection that says how SQLite begins a transaction: its driver does not.
_BEGIN = "sqlite_begin"
# Options of connections, by the name of the dialect. A reader sees one state all the while.
_WRITING = {
    "sqlite": {_BEGIN: "BEGIN IMMEDIATE"},
    "postgresql": {"isolation_level": "READ COMMITTED"},
}
_READING = {
    "sqlite": {_BEGIN: "BEGIN"},
    "postgresql": {"isolation_level": "REPEATABLE READ"},
}
_SECONDS_ON_SQLITE = select((func.julianday("now") - 2440587.5) * 86400.0)
_SECONDS_ON_POSTGRESQL = select(extract("epoch", func.clock_timestamp()))


class StoreUnavailable(Exception):
    """The database did not take what had to be recorded, so it did not happen."""


class StoreRefused(StoreUnavailable):
    """The database will not take this, however often it is tried: it breaks a rule of its own."""


class AlreadyRunning(Exception):
    """Another process works on the same data directory."""


def boot_time() -> float:
    """Return our own clock, in seconds; it goes on while the machine sleeps or we are stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SeenHead:
    """The newest entry of the change log that this process knows to be durable.

    head: its number and hash; (0, GENESIS) before any is known.
    """

    def __init__(self) -> None:
        self.head: tuple[int, str] = (0, "0" * 64)
        self._lock = threading.Lock()

    def note(self, head: tuple[int, str]) -> None:
        """Remember a newer one. Commits of several threads may be noted in any order."""
        with self._lock:
            self.head = max(self.head, head)


class Transaction:
    """One unit of work: committed as a whole, with the database's own time.

    sql: the connection that executes SQLAlchemy's statements. now: microseconds since 1970, when
    it began.
    """

    def __init__(
        self,
        sql: Connection,
        now: int,
        tell_news: Callable[[], None] = lambda: None,
        seal: SigningKey | None = None,
        redactor: Redactor | None = None,
        stamping: SigningKey | None = None,
        run_events: RunEvents | None = None,
    ) -> None:
        # What may be viewed by the person for whom it reads; None for the service itself.
        self.view_rights: ViewRights | None = None
        # What runs and entries must fit by that, once it was asked for.
        self.conditions: dict[ViewRights, tuple[Condition, Condition]] = {}
        self.sql, self.now = sql, now
        self.embedded = sql.dialect.name == "sqlite"
        self.tell_news = tell_news
        self._seal, self.stamping = seal, stamping or seal
        self._done_once: set[object] = set()
        self.redactor = redactor or Redactor()
        # Whether the change log grew: if that is durable, it can be written.
        self.logged = False
        # Number and hash of the entry that this transaction appended last.
        self.log_head: tuple[int, str] | None = None
        self._afterwards: list[Callable[[], None]] = []
        # Our own clock, just before the database's was read.
        self.began = 0.0
        self.run_events = run_events or RunEvents()
        self.seen_head = SeenHead()

    def insert_into(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """Return an insert that can say what to do on a conflict."""
        return sqlite.insert(table) if self.embedded else postgresql.insert(table)

    def insert_once(self, table: Table, **values: object) -> bool:
        """Insert a row; False if one with its key was there before. Settles races by the key."""
        insert = self.insert_into(table).on_conflict_do_nothing()
        return self.sql.execute(insert.returning(*table.primary_key), values).first() is not None

    @property
    def seal(self) -> SigningKey:
        """What entries of the change log are signed with."""
        if self._seal is None:
            raise StoreUnavailable("the change log has no key here: it can only be read")
        return self._seal

    def seal_by(self, key: SigningKey) -> None:
        """Sign further entries with another key, which the log names."""
        self._seal = key

    def first(self, what: object) -> bool:
        """Say whether this is asked for the first time: what one transaction need do but once."""
        is_new = what not in self._done_once
        self._done_once.add(what)
        return is_new

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Do something that others can see only once all of this is durable."""
        self._afterwards.append(callback)

    def committed(self) -> None:
        if self.logged and self.log_head is not None:
            self.seen_head.note(self.log_head)
        for callback in self._afterwards:
            try:
                callback()
            except Exception:
                # What was committed happened, whoever failed to hear of it.
                log.exception("after a commit")


class Database:
    """Opens transactions. url: `sqlite:///file` or `postgresql+psycopg://…`.

    seal: signs the change log; without one it can only be read.
    redactor: knows the secrets that are not to be recorded. patience: how many seconds it may
    take to answer.
    """

    def __init__(
        self,
        url: str,
        seal: SigningKey | None = None,
        redactor: Redactor | None = None,
        *,
        patience: int = _BLOCKED_SECONDS,
    ) -> None:
        self.url = url
        self._seal = seal
        self.redactor = redactor or Redactor()
        # Why the change log could not be written, until it could again; "" if all is well.
        self.error = ""
        self.embedded = url.startswith("sqlite")
        opened = open_sqlite if self.embedded else open_postgresql
        self.engine = opened(url, patience=patience, busy=_BUSY_SECONDS)
        # Called after every commit that somebody should hear of, from the committing thread.
        self.on_news: Callable[[], None] = lambda: None
        # Called before every transaction. Raises StoreUnavailable where we may not work on it now.
        self.may_write: Callable[[], None] = lambda: None
        self.run_events = RunEvents()
        self.seen_head = SeenHead()
        self._closed = False
        self._watch = StatementTimeout(self.engine, patience, needed=not self.embedded)
        # SQLite has one writer: waiting for it in turn is fairer and faster than its own polling.
        self.commits = Commits(self.open_to_write, commit, patience=_BUSY_SECONDS)

    def transaction(self, *, seconds: float | None = None) -> AbstractContextManager[Transaction]:
        """Write. Raises StoreUnavailable if anything could not be made durable.

        seconds: how long one statement, or the commit, may take; None for as little as is usual.
        """
        return self._written(self._alone(seconds))

    def together(self) -> AbstractContextManager[Transaction]:
        """Write, as in a transaction, and share the commit with others who do so just now.

        For what a wave of hosts writes: an intent is as durable after it as after its own commit.
        """
        return self._written(self._shared() if self.embedded else self._alone(None))

    @contextmanager
    def _written(self, opened: AbstractContextManager[Transaction]) -> Generator[Transaction]:
        """Keep what came of it: whether the log can be written, and what waits for the commit."""
        try:
            self.may_write()
            with opened as transaction:
                yield transaction
        except StoreUnavailable as error:
            self.error = str(error)
            raise
        if transaction.logged:
            self.error = ""
        transaction.committed()

    @contextmanager
    def _alone(self, seconds: float | None) -> Generator[Transaction]:
        with self._turn(), self.guarded(), self.open_to_write() as connection:
            began = boot_time()
            now = self.read_clock(connection)
            with self._watched_transaction(connection, seconds):
                yield self._writing(connection, began, now)
                commit(connection)

    @contextmanager
    def _shared(self) -> Generator[Transaction]:
        with self.guarded(), self._in_turn(), self.commits.together() as connection:
            began = boot_time()
            yield self._writing(connection, began, self.read_clock(connection))

    def _writing(self, connection: Connection, began: float, now: int) -> Transaction:
        made = Transaction(
            connection, now, self._tell_news, self._seal, self.redactor, run_events=self.run_events
        )
        made.seen_head = self.seen_head
        made.began = began
        return made

    @contextmanager
    def open_to_write(self) -> Generator[Connection]:
        """Yield a connection in a transaction that writes; what is not committed is taken back."""
        with self._connection() as connection:
            self._begin(connection, _WRITING)
            yield connection

    @contextmanager
    def reading(self, view_rights: ViewRights | None = None) -> Generator[Transaction]:
        """Read one consistent state. Nothing written here is kept.

        view_rights: of the person for whom it reads; None for the service itself, which sees all.
        """
        with self.guarded(), self._connection() as connection:
            self._begin(connection, _READING)
            now = self.read_clock(connection)
            with self._watched_transaction(connection, _READING_SECONDS):
                made = Transaction(
                    connection,
                    now,
                    redactor=self.redactor,
                    stamping=self._seal,
                    run_events=self.run_events,
                )
                made.seen_head = self.seen_head
                made.view_rights = view_rights
                yield made

    @contextmanager
    def watched(self, connection: Connection) -> Generator[None]:
        """Wait for no answer that does not come, and tell what goes wrong as StoreUnavailable."""
        with self.guarded(), self._watch.over(connection):
            yield

    def _begin(self, connection: Connection, options: Mapping[str, Mapping[str, str]]) -> None:
        connection.execution_options(**options[connection.dialect.name])
        connection.begin()

    @contextmanager
    def _watched_transaction(
        self, connection: Connection, seconds: float | None
    ) -> Generator[None]:
        with self._watch.over(connection, seconds):
            try:
                yield
            finally:
                # Does nothing after a commit.
                connection.rollback()

    def read_clock(self, connection: Connection) -> int:
        """Return the database's time, in microseconds since 1970.

        A server that does not answer this is given up sooner than one that searches for long.
        """
        query = _SECONDS_ON_SQLITE if self.embedded else _SECONDS_ON_POSTGRESQL
        with self._watch.over(connection):
            return round(connection.execute(query).scalar_one() * 1_000_000)

    def beside(self, url: str) -> "Database":
        """Return another database for the same log: with its key, and the secrets to leave out."""
        return Database(url, self._seal, self.redactor)

    def _tell_news(self) -> None:
        self.on_news()

    def close(self) -> None:
        self._closed = True
        self._watch.close()
        self.engine.dispose()

    @contextmanager
    def _connection(self) -> Generator[Connection]:
        connection = self.engine.connect()
        try:
            yield connection
        finally:
            # A thread may outlast close(): this would go back to a pool that is gone.
            if self._closed:
                connection.invalidate()
            connection.close()

    @contextmanager
    def _turn(self) -> Generator[None]:
        if not self.embedded:
            yield
            return
        with self._in_turn(), self.commits.alone():
            yield

    @contextmanager
    def _in_turn(self) -> Generator[None]:
        try:
            yield
        except Busy:
            why = "the database was busy for too long: nothing was done"
            raise StoreUnavailable(why) from None

    @contextmanager
    def guarded(self) -> Generator[None]:
        """Tell whatever the database cannot do as StoreUnavailable."""
        try:
            yield
        except (IntegrityError, DataError) as error:
            raise StoreRefused(f"the database refuses: {_said(error.orig)}") from error
        except DBAPIError as error:
            raise StoreUnavailable(f"the database says: {_said(error.orig)}") from error
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database cannot be used: {error}") from error


def _said(error: object) -> str:
    """Return it on one line: PostgreSQL takes several."""
    return " ".join(str(error).split())


def commit(connection: Connection) -> None:
    """Make durable what was written. Raises SQLAlchemyError if its transaction has ended already.

    A database gives up a transaction in which something failed: PostgreSQL answers a commit of it
    by taking it back, and SQLite has nothing to commit. The drivers report neither.
    """
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        alive = driver.in_transaction
    else:
        # psycopg is loaded only where PostgreSQL is used.
        from psycopg.pq import TransactionStatus

        alive = driver.info.transaction_status == TransactionStatus.INTRANS
    if not alive:
        raise SQLAlchemyError("the transaction failed before its commit")
    try:
        connection.commit()
    except SQLAlchemyError:
        # SQLAlchemy takes it for ended, but SQLite may leave it open.
        connection.invalidate()
        raise


@contextmanager
def lock_data_directory(directory: Path) -> Generator[None]:
    """Hold the data directory alone: a second process on it is refused."""
    data_directory.make_data_directory(directory)
    with (directory / "keyturn.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"another Keyturn already works on {directory}: stop that one first"
            ) from None
        yield
