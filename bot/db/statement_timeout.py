"""A watch over statements: a server that does not answer one in time is hung up on."""

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

_LOOK_SECONDS = 0.1
NEVER = float("inf")
# Firewalls forget connections that say nothing for minutes.
IDLE_SECONDS = 20.0
_USED = "used"


@dataclass
class _Watched:
    """driver: psycopg's connection beneath. due: when it is hung up on, by the monotonic clock.

    silent: it was hung up on.
    """

    driver: Any
    seconds: float
    due: float
    silent: bool = False


class StatementTimeout:
    """Hangs up where a statement, or a commit, of a watched connection takes too long.

    A server that is frozen keeps its connection open and says nothing, and no timeout of its own
    helps. Each connection that the pool hands out has to answer first. seconds: that a statement
    may take where nothing else is said. needed: False for a database that is a file.
    """

    def __init__(self, engine: Engine, seconds: float, *, needed: bool) -> None:
        self._engine, self.seconds = engine, seconds
        self._watched: dict[object, _Watched] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._needed = needed
        self._thread: threading.Thread | None = None
        if needed:
            event.listen(engine, "checkout", self._ping)
            event.listen(engine, "checkin", _note)
            event.listen(engine, "before_cursor_execute", self.begins)
            event.listen(engine, "after_cursor_execute", self.ends)
            event.listen(engine, "commit", self.begins)
            event.listen(engine, "rollback", self.begins)

    def close(self) -> None:
        self._over.set()

    @contextmanager
    def over(self, connection: Connection, seconds: float | None = None) -> Generator[None]:
        """Watch what this connection does within the block. seconds: other than the usual ones."""
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
                thread = threading.Thread(target=self._look, daemon=True)
                thread.start()
                self._thread = thread
        try:
            yield
        finally:
            with self._lock:
                self._watched.pop(key, None)

    def _ping(self, driver: Any, record: ConnectionPoolEntry, _fairy: object) -> None:
        """Do what the pool's own `pre_ping` does, which waits for a frozen server for good.

        A connection that has died is made anew. A server that says nothing is given up at once:
        another connection would wait for the same silence. Nothing is asked of a connection that
        was in use just now and was told nothing since, such as that it is over.
        """
        idle = time.monotonic() - record.info.get(_USED, -IDLE_SECONDS)
        if idle < IDLE_SECONDS and not driver.closed and not has_input(driver):
            return
        dialect = self._engine.dialect
        watched = _Watched(driver, self.seconds, time.monotonic() + self.seconds)
        with self._watching(driver, watched):
            try:
                dialect.do_ping(driver)
            except dialect.loaded_dbapi.Error as trouble:
                if watched.silent:
                    raise DBAPIError("", {}, trouble, connection_invalidated=True) from trouble
                raise InvalidatePoolError(str(trouble)) from trouble

    def begins(self, connection: Connection, *_: object, most: float = NEVER) -> None:
        """Watch over what its driver is asked now. most: seconds that it may take, where other
        statements of this connection may take more."""
        with self._lock:
            watched = self._watched.get(connection)
            if watched is not None:
                watched.due = time.monotonic() + min(watched.seconds, most)

    def ends(self, connection: Connection, *_: object) -> None:
        """Its driver was answered."""
        with self._lock:
            watched = self._watched.get(connection)
            if watched is not None:
                watched.due = NEVER

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            with self._lock:
                for watched in self._watched.values():
                    if watched.due <= now:
                        watched.due, watched.silent = NEVER, True
                        self._give_up(watched.driver)

    def _give_up(self, driver: Any) -> None:
        log.critical("the database does not answer: hanging up")
        try:
            _hang_up(driver)
        except self._engine.dialect.loaded_dbapi.Error as trouble:
            # It was lost just now: whoever waits hears of that. Others still need the watch.
            log.warning("there was nothing to hang up: %s", trouble)


def _note(_driver: Any, record: ConnectionPoolEntry) -> None:
    record.info[_USED] = time.monotonic()


def has_input(driver: Any) -> bool:
    """Say whether there is something to read. Not by select(): it takes no number above 1023."""
    poll = select.poll()
    poll.register(driver.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _hang_up(driver: Any) -> None:
    """End the socket beneath, so that whoever waits for it hears of that. Lock held: no reuse.

    By its own number: whoever has opened as many files as they may gets no other.
    """
    with suppress(OSError):
        line = socket.socket(fileno=driver.pgconn.socket)
        try:
            line.shutdown(socket.SHUT_RDWR)
        finally:
            line.detach()
