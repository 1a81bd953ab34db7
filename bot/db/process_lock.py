"""The tenure: a process may work on a database for as long as it holds the lock of those who do.

PostgreSQL forgets the lock with the connection that took it: at a restart, at a failover, or where
somebody ends that one session. So it is asked for before anything is written, and taken again.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, text

from bot.db.database import AlreadyRunning, Database, StoreUnavailable
from bot.db.statement_timeout import IDLE_SECONDS, has_input
from bot.model.keyfile import KeyFileError

log = logging.getLogger(__name__)

# Any number that nothing else in the database locks by.
_LOCK = 0x6B747372
# Who waits for somebody else to take the lock again waits no longer.
_TURN_SECONDS = 5.0
_WHO = text(
    "SELECT pid, backend_start AS since FROM pg_stat_activity WHERE pid = pg_backend_pid()"
)
# A session whose end the server has not heard of would keep us out ourselves.
_END = text(
    "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity "
    "WHERE pid = :pid AND backend_start = :since"
)


class ProcessLock:
    """Holds the lock by a connection of its own. take: the function of PostgreSQL that does.

    why: others hold it so that we may not. on_end: called once they have got it while we had lost
    it: what we know may be out of date, so this process writes nothing any more. on_return: called
    once it was lost and is ours again; raises BadKey where the log has another key by now. over:
    why this process may write nothing any more; "" as long as it may.
    """

    def __init__(self, database: Database, take: str, why: str) -> None:
        self._database, self._why = database, why
        self._take = text(f"SELECT {take}(:key)")
        self._connection: Connection | None = None
        self._turn = threading.RLock()
        self._asked = 0.0
        self.over = ""
        self._session: dict[str, Any] | None = None
        self.on_end: Callable[[], object] = lambda: None
        self.on_return: Callable[[], object] = lambda: None

    def begin(self) -> None:
        """Take the lock. Raises AlreadyRunning, and StoreUnavailable."""
        with self._database.guarded():
            connection = self._database.engine.connect()
        self._connection = connection
        with self._database.watched(connection):
            if self._session is not None:
                connection.execute(_END, self._session)
            if not connection.execute(self._take, {"key": _LOCK}).scalar_one():
                raise AlreadyRunning(self._why)
            self._session = dict(connection.execute(_WHO).mappings().one())
            connection.commit()
        self._asked = time.monotonic()

    def end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The lock is the connection's, and that would go back to the pool.
            with suppress(Exception):
                connection.invalidate()
                connection.close()

    def check(self) -> None:
        """Raise StoreUnavailable unless we have the lock, and take it again where it was lost."""
        if self._stands():
            return
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            raise StoreUnavailable("the database does not answer: nothing was done")
        try:
            if not self.over and not self._stands() and not self._answers():
                self._again()
        finally:
            self._turn.release()
        if self.over:
            raise StoreUnavailable(self.over)

    def _stands(self) -> bool:
        """Say whether the connection is there for all we know, without asking the server."""
        if self.over or time.monotonic() - self._asked > IDLE_SECONDS:
            return False
        connection = self._connection
        try:
            return connection is not None and not has_input(
                connection.connection.driver_connection
            )
        except Exception:  # noqa: BLE001 - however it tells that it is closed
            return False

    def _answers(self) -> bool:
        if self._connection is None:
            return False
        try:
            with self._database.watched(self._connection):
                self._connection.execute(text("SELECT 1"))
                self._connection.commit()
        except StoreUnavailable:
            return False
        self._asked = time.monotonic()
        return True

    def _again(self) -> None:
        self.end()
        try:
            self.begin()
            self.on_return()
        except (AlreadyRunning, KeyFileError) as other:
            self.over = f"this process may write nothing any more, and ends: {other}"
            log.critical("the database was away, and others work on it by now: %s", other)
            self.end()
            self.on_end()
        except StoreUnavailable:
            self.end()
            raise
        else:
            log.warning("the database was away: its lock is ours again")


@contextmanager
def lock_shared(database: Database) -> Generator[ProcessLock]:
    """Hold a PostgreSQL database beside others that do so: one that holds it alone is refused."""
    why = (
        "an embedded Keyturn works on this database, or its key is being changed: stop that "
        "first. All processes on one database have the same KEYTURN_ENGINE"
    )
    with _held(ProcessLock(database, "pg_try_advisory_lock_shared", why)) as tenure:
        yield tenure


@contextmanager
def lock_exclusive(database: Database) -> Generator[ProcessLock | None]:
    """Hold a PostgreSQL database alone, for as long as one process does all the work on it.

    None for SQLite, where the data directory is held.
    """
    if database.embedded:
        yield None
        return
    why = (
        "another Keyturn already works on this database: stop that first. Several at once need "
        "KEYTURN_ENGINE=distributed, each of them"
    )
    with _held(ProcessLock(database, "pg_try_advisory_lock", why)) as tenure:
        yield tenure


@contextmanager
def _held(tenure: ProcessLock) -> Generator[ProcessLock]:
    try:
        tenure.begin()
        yield tenure
    finally:
        tenure.end()
