"""A relay in front of a TCP server that can go silent, as a host behind a broken network does."""

import contextlib
import socket
import threading
from collections.abc import Callable

from tests.playground.between import Between, hang_up


class Relay(Between):
    """Passes what is said on to a server and back, on a free loopback port of its own.

    Once silent it keeps every connection open, takes new ones, and swallows all that comes from
    either side. after: bytes from the server after which it falls silent by itself, or hangs up.
    passed: how many there were.
    """

    def __init__(
        self, address: str, port: int, *, after: int | None = None, hangs_up: bool = False
    ) -> None:
        super().__init__(address, port)
        self._hangs_up = hangs_up
        # One for all connections until it is set, and another for those that come after.
        self._swallows = threading.Event()
        self._after = after
        self.passed = 0

    def fall_silent(self) -> None:
        self._swallows.set()

    def cut(self) -> None:
        """End every connection, and swallow what comes over new ones."""
        self.fall_silent()
        for stream in self._streams:
            hang_up(stream)

    def speak(self) -> None:
        """Pass on what comes over new connections; the others lack something for good."""
        self._swallows = threading.Event()

    def _works(self) -> list[Callable[[socket.socket, socket.socket], None]]:
        swallows = self._swallows
        return [
            lambda guest, server: self._pass(guest, server, swallows),
            lambda guest, server: self._pass(server, guest, swallows),
        ]

    def _pass(self, source: socket.socket, to: socket.socket, swallows: threading.Event) -> None:
        with contextlib.suppress(OSError):  # one side has hung up
            while data := source.recv(65536):
                passed = data if source.getpeername()[:2] != self._to else self._counted(data)
                if not swallows.is_set():
                    to.sendall(passed)
                if self._after is not None and self.passed >= self._after:
                    swallows.set()
                    if self._hangs_up:
                        hang_up(source)
                        hang_up(to)
            if not swallows.is_set():
                to.shutdown(socket.SHUT_WR)

    def _counted(self, data: bytes) -> bytes:
        """Return what the server may still say of this."""
        left = len(data) if self._after is None else max(0, self._after - self.passed)
        self.passed += len(data[:left])
        return data[:left]
