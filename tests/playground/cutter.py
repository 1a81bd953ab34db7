"""A cutter between a program and PostgreSQL: a commit gets through, and its answer does not."""

import contextlib
import socket
import threading
from collections.abc import Callable

from tests.playground.between import Between, hang_up

# What PostgreSQL says once it has committed, however it was asked to.
_COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"


class Cutter(Between):
    """Passes everything on, on a free loopback port of its own, but for one answer.

    port: of the server. cuts: how many answers were lost, ever.
    """

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self._lock = threading.Lock()
        self._left: int | None = None
        self.cuts = 0

    def cut(self, n: int) -> None:
        """Lose the answer to the nth commit from now on."""
        with self._lock:
            self._left = n

    def let_be(self) -> bool:
        """Lose no answer; say whether one was still to be lost."""
        with self._lock:
            waited, self._left = self._left is not None, None
            return waited

    def _works(self) -> list[Callable[[socket.socket, socket.socket], None]]:
        return [self._ask, self._answer]

    def _ask(self, guest: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # one side has hung up
            while data := guest.recv(65536):
                server.sendall(data)
        hang_up(server)

    def _answer(self, guest: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                # The server has answered, so what was committed is durable by now.
                if _COMMITTED in data and self._is_the_one():
                    break
                guest.sendall(data)
        hang_up(guest)
        hang_up(server)

    def _is_the_one(self) -> bool:
        with self._lock:
            if self._left is None:
                return False
            self._left -= 1
            if self._left:
                return False
            self._left = None
            self.cuts += 1
            return True
