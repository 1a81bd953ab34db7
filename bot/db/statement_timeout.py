"""A time limit for statements: closes the connection if the server does not answer in time."""

import logging
import select
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
NEVER = float("inf")
# Firewalls drop connections that are idle for minutes.
IDLE_SECONDS = 20.0
_USED = "used"


@dataclass
class _Watched:
    """A connection with a time limit."""

    driver: Any
    """The connection of psycopg."""
    seconds: float
    due: float
    """When it is closed, by the monotonic clock."""
    silent: bool = False
    """Whether it was closed because the server did not answer."""


class StatementTimeout:
    """Closes a connection whose statement or commit takes too long.

    A frozen server keeps its connections open without an answer, and its own timeouts do not help.
    Each connection from the pool has to answer first. seconds: the default limit of a statement.
    needed: False for SQLite.
    """

    def __init__(self, engine: Engine, seconds: float, *, needed: bool) -> None:
        self._engine, self.seconds = engine, seconds
        self._watched: dict[object, _Watched] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._needed = needed
        self._thread: threading.Thread | None = None
        if needed:
            event.listen(engine, "checkout", self._ping)
            event.listen(engine, "checkin", _note_use)
            event.listen(engine, "before_cursor_execute", self.start_statement)
            event.listen(engine, "after_cursor_execute", self.end_statement)
            event.listen(engine, "commit", self.start_statement)
            event.listen(engine, "rollback", self.start_statement)

    def close(self) -> None:
        self._closed.set()

    @contextmanager
    def limit(self, connection: Connection, seconds: float | None = None) -> Generator[None]:
        """Limit the time of each statement in the block. seconds: instead of the default."""
        if not self._needed:
            yield
            return
        driver = connection.connection.driver_connection
        with self._watching(connection, _Watched(driver, seconds or self.seconds, NEVER)):
            yield

    @contextmanager
    def _watching(self, key: object, watched: _Watched) -> Generator[None]:
        with self._lock:
            self._watched[key] = watched
            if self._thread is None:
                thread = threading.Thread(target=self._close_overdue, daemon=True)
                thread.start()
                self._thread = thread
        try:
            yield
        finally:
            with self._lock:
                self._watched.pop(key, None)

    def _ping(self, driver: Any, record: ConnectionPoolEntry, _fairy: object) -> None:
        """Do the same as `pre_ping` of the pool, which would wait for a frozen server forever.

        A dead connection is replaced. If the server does not answer, the error is raised
        immediately, because another connection would not be answered either. A connection that was
        just used, and for which no data has arrived since, is not checked.
        """
        idle = time.monotonic() - record.info.get(_USED, -IDLE_SECONDS)
        if idle < IDLE_SECONDS and not driver.closed and not has_input(driver):
            return
        dialect = self._engine.dialect
        watched = _Watched(driver, self.seconds, time.monotonic() + self.seconds)
        with self._watching(driver, watched):
            try:
                dialect.do_ping(driver)
            except dialect.loaded_dbapi.Error as error:
                if watched.silent:
                    raise DBAPIError("", {}, error, connection_invalidated=True) from error
                raise InvalidatePoolError(str(error)) from error

    def start_statement(self, connection: Connection, *_: object, most: float = NEVER) -> None:
        """Start the time limit of a statement. most: a lower limit than for other statements."""
        with self._lock:
            watched = self._watched.get(connection)
            if watched is not None:
                watched.due = time.monotonic() + min(watched.seconds, most)

    def end_statement(self, connection: Connection, *_: object) -> None:
        """End the time limit: the server answered."""
        with self._lock:
            watched = self._watched.get(connection)
            if watched is not None:
                watched.due = NEVER

    def _close_overdue(self) -> None:
        while not self._closed.wait(_POLL_SECONDS):
            now = time.monotonic()
            with self._lock:
                for watched in self._watched.values():
                    if watched.due <= now:
                        watched.due, watched.silent = NEVER, True
                        self._close_connection(watched.driver)

    def _close_connection(self, driver: Any) -> None:
        log.critical("the database does not answer: closing the connection")
        try:
            _shut_down_socket(driver)
        except self._engine.dialect.loaded_dbapi.Error as error:
            # The connection was lost just now, so the waiting thread gets its error. This thread
            # has to continue for the other connections.
            log.warning("the connection was closed already: %s", error)


def _note_use(_driver: Any, record: ConnectionPoolEntry) -> None:
    record.info[_USED] = time.monotonic()


def has_input(driver: Any) -> bool:
    """Return whether there is data to read. Not by select(), which is limited to 1023 files."""
    poll = select.poll()
    poll.register(driver.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _shut_down_socket(driver: Any) -> None:
    """Shut down the socket of a connection, so that the waiting thread gets an error.

    The lock is held, so the number of the socket is not reused. A duplicate of it could not be
    opened if the process has reached its limit of open files.
    """
    with suppress(OSError):
        connection = socket.socket(fileno=driver.pgconn.socket)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()
