"""A watch over statements: a server that does not answer one in time is hung up on."""

import logging
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, event

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.25


class Watch:
    """Hangs up where a statement, or a commit, of a watched connection takes too long.

    A server that is frozen keeps its connection open and says nothing, and no timeout of its own
    helps. needed: False for a database that is a file.
    """

    def __init__(self, engine: Engine, seconds: float, *, needed: bool) -> None:
        self._seconds = seconds
        self._due: dict[Connection, float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._needed = needed
        self._thread: threading.Thread | None = None
        if needed:
            event.listen(engine, "before_cursor_execute", self._begins)
            event.listen(engine, "after_cursor_execute", self._ends)
            event.listen(engine, "commit", self._begins)

    def close(self) -> None:
        self._over.set()

    @contextmanager
    def over(self, connection: Connection) -> Generator[None]:
        """Watch what this connection does within the block."""
        if not self._needed:
            yield
            return
        self._start()
        with self._lock:
            self._due[connection] = float("inf")
        try:
            yield
        finally:
            with self._lock:
                self._due.pop(connection, None)

    def _begins(self, connection: Connection, *_: object) -> None:
        self._set(connection, time.monotonic() + self._seconds)

    def _ends(self, connection: Connection, *_: object) -> None:
        self._set(connection, float("inf"))

    def _set(self, connection: Connection, due: float) -> None:
        with self._lock:
            if connection in self._due:
                self._due[connection] = due

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, daemon=True)
                self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            with self._lock:
                for connection, due in self._due.items():
                    if due <= now:
                        self._due[connection] = float("inf")
                        log.critical("the database does not answer: hanging up")
                        _hang_up(connection)


def _hang_up(connection: Connection) -> None:
    """End the socket beneath, so that whoever waits for it hears of that. Lock held: no reuse."""
    driver: Any = connection.connection.driver_connection
    with suppress(OSError), socket.socket(fileno=os.dup(driver.pgconn.socket)) as line:
        line.shutdown(socket.SHUT_RDWR)
