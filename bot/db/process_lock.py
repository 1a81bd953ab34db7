"""The process lock: a process may write to a PostgreSQL database only while it holds the lock.

PostgreSQL releases the lock with the connection that took it: after a restart, after a failover,
or if an administrator ends the session. So the lock is checked before every write, and taken again
if it was lost.
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

# A number that no other advisory lock of the database uses.
_LOCK = 0x6B747372
# How long a thread waits while another thread takes the lock again.
_TURN_SECONDS = 5.0
_WHO = text(
    "SELECT pid, backend_start AS since FROM pg_stat_activity WHERE pid = pg_backend_pid()"
)
# If the server has not noticed that our old session ended, it would still hold the lock.
_END = text(
    "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity "
    "WHERE pid = :pid AND backend_start = :since"
)


class ProcessLock:
    """Holds the lock on its own connection.

    Args:
        take: The function of PostgreSQL that takes the lock.
        why: The message if another process holds it.

    on_end is called if another process took the lock while we had lost it: what we know may be out
    of date, so this process must not write any more. on_return is called if the lock was lost and
    is ours again; it raises KeyFileError if the log has another key by now. over: why this process
    must not write any more; "" while it may.
    """

    def __init__(self, database: Database, take: str, why: str) -> None:
        self._database, self._why = database, why
        self._take = text(f"SELECT {take}(:key)")
        self._connection: Connection | None = None
        self._turn = threading.RLock()
        self._checked_at = 0.0
        self.over = ""
        self._session: dict[str, Any] | None = None
        self.on_end: Callable[[], object] = lambda: None
        self.on_return: Callable[[], object] = lambda: None

    def begin(self) -> None:
        """Take the lock. Raises AlreadyRunning or StoreUnavailable."""
        with self._database.guarded():
            connection = self._database.engine.connect()
        self._connection = connection
        with self._database.limit_time(connection):
            if self._session is not None:
                connection.execute(_END, self._session)
            if not connection.execute(self._take, {"key": _LOCK}).scalar_one():
                raise AlreadyRunning(self._why)
            self._session = dict(connection.execute(_WHO).mappings().one())
            connection.commit()
        self._checked_at = time.monotonic()

    def end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The connection holds the lock, so it must not return to the pool.
            with suppress(Exception):
                connection.invalidate()
                connection.close()

    def check(self) -> None:
        """Take the lock again if it was lost. Raises StoreUnavailable if we do not have it."""
        if self._seems_connected():
            return
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            raise StoreUnavailable("the database does not answer: nothing was done")
        try:
            if not self.over and not self._seems_connected() and not self._ping():
                self._take_again()
        finally:
            self._turn.release()
        if self.over:
            raise StoreUnavailable(self.over)

    def _seems_connected(self) -> bool:
        """Return whether the connection seems to exist, without a query to the server."""
        if self.over or time.monotonic() - self._checked_at > IDLE_SECONDS:
            return False
        connection = self._connection
        try:
            return connection is not None and not has_input(
                connection.connection.driver_connection
            )
        except Exception:  # noqa: BLE001 - any error means that it is closed
            return False

    def _ping(self) -> bool:
        if self._connection is None:
            return False
        try:
            with self._database.limit_time(self._connection):
                self._connection.execute(text("SELECT 1"))
                self._connection.commit()
        except StoreUnavailable:
            return False
        self._checked_at = time.monotonic()
        return True

    def _take_again(self) -> None:
        self.end()
        try:
            self.begin()
            self.on_return()
        except (AlreadyRunning, KeyFileError) as other:
            self.over = f"this process must not write any more, and ends: {other}"
            log.critical(
                "the database was unreachable, and another process uses it now: %s", other
            )
            self.end()
            self.on_end()
        except StoreUnavailable:
            self.end()
            raise
        else:
            log.warning("the database was unreachable: this process holds its lock again")


@contextmanager
def lock_shared(database: Database) -> Generator[ProcessLock]:
    """Take the lock shared with other processes; one that wants it exclusively is refused."""
    why = (
        "an embedded Keyturn uses this database, or its signing key is being changed: stop that "
        "process first. All processes on one database need the same KEYTURN_ENGINE"
    )
    with _hold(ProcessLock(database, "pg_try_advisory_lock_shared", why)) as process_lock:
        yield process_lock


@contextmanager
def lock_exclusive(database: Database) -> Generator[ProcessLock | None]:
    """Take the lock exclusively, for a process that does all the work on the database.

    None for SQLite, where the data directory is locked instead.
    """
    if database.embedded:
        yield None
        return
    why = (
        "another Keyturn already uses this database: stop that process first. To run several, set "
        "KEYTURN_ENGINE=distributed for each of them"
    )
    with _hold(ProcessLock(database, "pg_try_advisory_lock", why)) as process_lock:
        yield process_lock


@contextmanager
def _hold(process_lock: ProcessLock) -> Generator[ProcessLock]:
    try:
        process_lock.begin()
        yield process_lock
    finally:
        process_lock.end()
