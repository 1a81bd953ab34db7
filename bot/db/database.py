"""The database: one engine, short transactions, and its own clock for all processes."""

import fcntl
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from bot.db import data_directory
from bot.db.commits import Busy, Commits
from bot.db.condition import Condition
from bot.db.events import RunEvents
from bot.db.shared_flush import SharedFlush
from bot.db.statement_timeout import StatementTimeout
from bot.model.merkle import Tree
from bot.model.redaction import Redactor
from bot.model.signing import SigningKey
from bot.model.times import SECOND
from bot.model.view_rights import ViewRights
from connectors.errors import DomainError

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

# How many connections are kept open, and how many more are opened when all are in use.
_KEPT, _MORE = 16, 16
# Shorter than the statement timeout, so that the server reports a lock that is held for too long
# before we close the connection.
_LOCKED_MILLISECONDS = 1_750


def open_sqlite(url: str, *, patience: int, busy: int) -> Engine:
    """Open a SQLite file.

    patience: seconds that a statement may wait. busy: seconds to wait for a free connection.
    """
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
            # Deleted data is overwritten.
            "secure_delete=ON",
            f"busy_timeout={patience * 1000}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        statement = connection.get_execution_options().get(_BEGIN)
        if statement:
            connection.exec_driver_sql(statement)

    return engine


def open_postgresql(url: str, *, patience: int, busy: int) -> Engine:
    """Open a PostgreSQL database. patience, busy: as for open_sqlite()."""
    return create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        pool_size=_KEPT,
        max_overflow=_MORE,
        pool_timeout=busy,
        # StatementTimeout checks whether a connection still works: `pool_pre_ping` would wait for
        # a frozen server without a limit.
        connect_args={
            # A generic plan of a prepared statement would use the wrong index for many values.
            "prepare_threshold": None,
            "connect_timeout": patience,
            "tcp_user_timeout": 2 * busy * 1000,
            # JIT compilation takes longer than these short statements.
            "options": f"-c lock_timeout={_LOCKED_MILLISECONDS} -c jit=off",
        },
    )


log = logging.getLogger(__name__)

_BUSY_SECONDS = 5
# A blocked database counts as failed after this time.
_BLOCKED_SECONDS = 2
# Reads may take longer: an export, or a search in years of history.
_READING_SECONDS = 60
# The connection option with the statement that begins a transaction on SQLite.
_BEGIN = "sqlite_begin"
# Connection options by the name of the dialect. A reader sees one consistent state.
_WRITING = {
    "sqlite": {_BEGIN: "BEGIN IMMEDIATE"},
    "postgresql": {"isolation_level": "READ COMMITTED"},
}
_READING = {
    "sqlite": {_BEGIN: "BEGIN"},
    "postgresql": {"isolation_level": "REPEATABLE READ"},
}
_SECONDS_ON_POSTGRESQL = select(extract("epoch", func.clock_timestamp()))


class StoreUnavailable(DomainError):
    """The database did not store what has to be recorded, so nothing was done."""

    code, status, retry_seconds = "database-unavailable", 503, 5

    @property
    def public_message(self) -> str:
        return (
            "the database does not respond, so nothing was done. Try again in a few seconds; the "
            "log of the service has the reason"
        )


class StoreRefused(StoreUnavailable):
    """The database refuses this because it violates a constraint; retrying does not help."""


class AlreadyRunning(DomainError):
    """Another process works on the same data directory."""

    code = "already-running"


def boot_time() -> float:
    """Return the clock of this machine in seconds; it also counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SeenHead:
    """What this process remembers of the end of the change log; nothing at its start."""

    def __init__(self) -> None:
        self.tree = Tree()
        """The newest tree that it knows to be durable."""
        self.signed = Tree()
        """The tree that it signed last. It may not be stored yet, or never be."""
        self._lock = threading.Lock()

    def note(self, tree: Tree) -> None:
        """Remember this tree if it is larger. Threads may report their commits in any order."""
        with self._lock:
            self.tree = max(self.tree, tree, key=lambda one: one.size)


class Transaction:
    """One unit of work, committed as a whole.

    sql: the connection that executes SQLAlchemy statements. now: the time of the database when it
    began, in microseconds since 1970, UTC.
    """

    def __init__(
        self,
        sql: Connection,
        now: int,
        wake_outbox: Callable[[], None] = lambda: None,
        signing_key: SigningKey | None = None,
        redactor: Redactor | None = None,
        stamping: SigningKey | None = None,
        run_events: RunEvents | None = None,
    ) -> None:
        # What the person who reads may view; None for the service itself, which sees everything.
        self.view_rights: ViewRights | None = None
        # The conditions on runs and entries for these rights, cached.
        self.conditions: dict[ViewRights, tuple[Condition, Condition]] = {}
        self.sql, self.now = sql, now
        self.embedded = sql.dialect.name == "sqlite"
        self.wake_outbox = wake_outbox
        self._signing_key, self.stamping = signing_key, stamping or signing_key
        self._called: set[object] = set()
        self.redactor = redactor or Redactor()
        # Whether it appended to the change log.
        self.logged = False
        # The tree with what this transaction has appended; None before it locks the log.
        self.log_head: Tree | None = None
        # The newest tree that it has verified, which another process may have written just now.
        self.verified_tree = Tree()
        # Whether its commit does not wait for the disk.
        self.commits_early = False
        # The name of the log that is locked.
        self.log_origin = ""
        self._callbacks: list[Callable[[], None]] = []
        # The clock of this machine (boot_time()) just before the database's was read.
        self.began = 0.0
        self.run_events = run_events or RunEvents()
        self.seen_head = SeenHead()
        # What was durable before it read anything: it may not see what others append meanwhile.
        self.tree_at_begin = Tree()

    def insert_into(self, table: Table) -> "sqlite.Insert | postgresql.Insert":
        """Return an INSERT that supports ON CONFLICT."""
        if self.embedded:
            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)

    def insert_once(self, table: Table, **values: object) -> bool:
        """Insert a row; False if its key exists. The key decides between concurrent inserts."""
        insert = self.insert_into(table).on_conflict_do_nothing()
        return self.sql.execute(insert.returning(*table.primary_key), values).first() is not None

    @property
    def signing_key(self) -> SigningKey:
        """The key that signs the entries of the change log."""
        if self._signing_key is None:
            raise StoreUnavailable(
                "this process has no signing key, so the change log can only be read"
            )
        return self._signing_key

    @property
    def can_sign(self) -> bool:
        """Whether this process may write; else it only reads, and decides nothing."""
        return self._signing_key is not None

    def set_signing_key(self, key: SigningKey) -> None:
        """Sign the next entries with another key, which the log holds."""
        self._signing_key = key

    def is_first_call(self, what: object) -> bool:
        """Return whether this is the first call with *what* in this transaction."""
        is_new = what not in self._called
        self._called.add(what)
        return is_new

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call this once the transaction is durable."""
        self._callbacks.append(callback)

    def finish(self) -> None:
        """Run the callbacks after the commit."""
        self.seen_head.note(self.log_head or self.verified_tree)
        for callback in self._callbacks:
            try:
                callback()
            except Exception:
                # The commit is done, so a failed callback must not look like a failed write.
                log.exception("a callback after a commit failed")


class Database:
    """Opens transactions. url: `sqlite:///file` or `postgresql+psycopg://…`.

    signing_key: of the change log; without it the log can only be read. redactor: removes secrets
    from what is stored. patience: seconds that a statement may take.
    """

    def __init__(
        self,
        url: str,
        signing_key: SigningKey | None = None,
        redactor: Redactor | None = None,
        *,
        patience: int = _BLOCKED_SECONDS,
    ) -> None:
        self.url = url
        self._signing_key = signing_key
        self.redactor = redactor or Redactor()
        # Why the change log cannot be written; None if it can.
        self.error: StoreUnavailable | None = None
        self.embedded = url.startswith("sqlite")
        opened = open_sqlite if self.embedded else open_postgresql
        self.engine = opened(url, patience=patience, busy=_BUSY_SECONDS)
        # Called after every commit with notifications to deliver, by the committing thread.
        self.on_outbox_change: Callable[[], None] = lambda: None
        # Called before every write. Raises StoreUnavailable if this process may not write now.
        self.may_write: Callable[[], None] = lambda: None
        self.run_events = RunEvents()
        self.seen_head = SeenHead()
        self._closed = False
        self._watch = StatementTimeout(self.engine, patience, needed=not self.embedded)
        # SQLite has one writer: a queue is fairer and faster than its own polling.
        self.commits = Commits(self.open_to_write, commit, patience=_BUSY_SECONDS)
        self._shared_flush = SharedFlush()

    def transaction(self, *, seconds: float | None = None) -> AbstractContextManager[Transaction]:
        """Open a transaction to write. Raises StoreUnavailable if anything is not durable.

        seconds: how long one statement, or the commit, may take; None for the default.
        """
        return self._track_write(self._open_alone(seconds))

    def shared_transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that shares its commit with others at the same time.

        For the writes of a wave of hosts: they are as durable as after a separate commit.
        """
        return self._track_write(self._open_shared() if self.embedded else self._open_alone(None))

    @contextmanager
    def _track_write(self, opened: AbstractContextManager[Transaction]) -> Generator[Transaction]:
        """Record whether the log can be written, and run the callbacks after the commit."""
        try:
            self.may_write()
            with opened as transaction:
                yield transaction
        except StoreUnavailable as error:
            self.error = error
            raise
        if transaction.logged:
            self.error = None
        transaction.finish()

    @contextmanager
    def _open_alone(self, seconds: float | None) -> Generator[Transaction]:
        with self._hold_write_lock(), self.guarded(), self.open_to_write() as connection:
            began = boot_time()
            now = self.read_clock(connection)
            with self._limit_transaction(connection, seconds):
                transaction = self._build_transaction(connection, began, now)
                yield transaction
                if transaction.log_head is not None:
                    # The next one who locks the log may be there before this thread goes on.
                    self.seen_head.signed = transaction.log_head
                commit(connection)
                if transaction.commits_early or self._is_new(transaction.verified_tree.size):
                    self._shared_flush.wait_until_durable(connection)

    def wait_until_durable(self, size: int) -> None:
        """Return when the entries that were read, up to this one, are durable.

        Call it before something remembers them. Raises StoreUnavailable.
        """
        if self._is_new(size):
            with self.guarded(), self._connection() as connection, self._watch.limit(connection):
                self._shared_flush.wait_until_durable(connection)

    def _is_new(self, size: int) -> bool:
        """Return whether the process that appended this entry may still wait for the disk."""
        return not self.embedded and size > self.seen_head.tree.size

    @contextmanager
    def _open_shared(self) -> Generator[Transaction]:
        with self.guarded(), self._handle_busy(), self.commits.share_commit() as connection:
            began = boot_time()
            transaction = self._build_transaction(connection, began, self.read_clock(connection))
            yield transaction

    def _build_transaction(self, connection: Connection, began: float, now: int) -> Transaction:
        made = Transaction(
            connection,
            now,
            self._wake_outbox,
            self._signing_key,
            self.redactor,
            run_events=self.run_events,
        )
        made.seen_head = self.seen_head
        made.tree_at_begin = self.seen_head.tree
        made.began = began
        return made

    @contextmanager
    def open_to_write(self) -> Generator[Connection]:
        """Yield a connection in a transaction that writes; the rest is rolled back."""
        with self._connection() as connection:
            self._begin(connection, _WRITING)
            yield connection

    @contextmanager
    def reading(self, view_rights: ViewRights | None = None) -> Generator[Transaction]:
        """Open a transaction that reads one consistent state. Nothing written in it is kept.

        view_rights: of the person who reads; None for the service, which sees all.
        """
        tree_at_begin = self.seen_head.tree
        with self.guarded(), self._connection() as connection:
            self._begin(connection, _READING)
            now = self.read_clock(connection)
            with self._limit_transaction(connection, _READING_SECONDS):
                made = Transaction(
                    connection,
                    now,
                    redactor=self.redactor,
                    stamping=self._signing_key,
                    run_events=self.run_events,
                )
                made.seen_head = self.seen_head
                made.tree_at_begin = tree_at_begin
                made.view_rights = view_rights
                yield made

    @contextmanager
    def limit_time(self, connection: Connection) -> Generator[None]:
        """Limit the time of each statement, and raise errors as StoreUnavailable."""
        with self.guarded(), self._watch.limit(connection):
            yield

    def _begin(self, connection: Connection, options: Mapping[str, Mapping[str, str]]) -> None:
        connection.execution_options(**options[connection.dialect.name])
        connection.begin()

    @contextmanager
    def _limit_transaction(self, connection: Connection, seconds: float | None) -> Generator[None]:
        with self._watch.limit(connection, seconds):
            try:
                yield
            finally:
                # Does nothing after a commit.
                connection.rollback()

    def read_clock(self, connection: Connection) -> int:
        """Return the database's time, in microseconds since 1970.

        The default time limit applies, so a server that does not answer is detected early.
        SQLite has no time of its own: all its processes are on this machine, and read its clock.
        """
        if self.embedded:
            return time.time_ns() // 1000
        with self._watch.limit(connection):
            return round(connection.execute(_SECONDS_ON_POSTGRESQL).scalar_one() * SECOND)

    def open_copy(self, url: str) -> "Database":
        """Open another database for the same change log, with the same key and secrets."""
        return Database(url, self._signing_key, self.redactor)

    def _wake_outbox(self) -> None:
        self.on_outbox_change()

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
            # A thread may run longer than close(): the pool is gone then.
            if self._closed:
                connection.invalidate()
            connection.close()

    @contextmanager
    def _hold_write_lock(self) -> Generator[None]:
        if not self.embedded:
            yield
            return
        with self._handle_busy(), self.commits.hold_alone():
            yield

    @contextmanager
    def _handle_busy(self) -> Generator[None]:
        try:
            yield
        except Busy:
            message = "the database was busy for too long: nothing was done"
            raise StoreUnavailable(message) from None

    @contextmanager
    def guarded(self) -> Generator[None]:
        """Raise the errors of the database as StoreUnavailable."""
        try:
            yield
        except (IntegrityError, DataError) as error:
            raise StoreRefused(
                f"the database refused this: {_format_error(error.orig)}"
            ) from error
        except DBAPIError as error:
            raise StoreUnavailable(f"the database failed: {_format_error(error.orig)}") from error
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database cannot be used: {error}") from error


def _format_error(error: object) -> str:
    """Return an error message on one line; those of PostgreSQL have several."""
    return " ".join(str(error).split())


def commit(connection: Connection) -> None:
    """Commit the transaction. Raises SQLAlchemyError if it has ended already.

    A database aborts a transaction in which a statement failed: PostgreSQL answers its commit with
    a rollback, and SQLite has nothing to commit. The drivers report neither.
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
        # SQLAlchemy treats it as ended, but SQLite may leave it open.
        connection.invalidate()
        raise


@contextmanager
def lock_data_directory(directory: Path) -> Generator[None]:
    """Lock the data directory, so that a second process on it is refused."""
    data_directory.make_data_directory(directory)
    with (directory / "keyturn.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"another Keyturn already uses {directory}: stop that one first"
            ) from None
        yield
