"""A relay in front of a TCP server that can go silent, as a host behind a broken network does."""

import contextlib
import socket
import threading
from typing import Self


class Relay:
    """Passes what is said on to a server and back, on a free loopback port of its own.

    Once silent it keeps every connection open, takes new ones, and swallows all that comes from
    either side. after: bytes from the server after which it falls silent by itself. passed: how
    many there were.
    """

    def __init__(self, address: str, port: int, *, after: int | None = None) -> None:
        self._to = (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._streams: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        # One for all connections until it is set, and another for those that come after.
        self._swallows = threading.Event()
        self._after = after
        self.passed = 0

    def fall_silent(self) -> None:
        self._swallows.set()

    def speak(self) -> None:
        """Pass on what comes over new connections; the others lack something for good."""
        self._swallows = threading.Event()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # First the listener, so that no stream is added meanwhile.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for stream in (*self._streams, self._listener):
            stream.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # the listener was shut down
            while True:
                guest, swallows = self._listener.accept()[0], self._swallows
                self._streams.append(guest)
                server = socket.create_connection(self._to)
                self._streams.append(server)
                for ways in ((guest, server, swallows), (server, guest, swallows)):
                    self._threads.append(threading.Thread(target=self._pass, args=ways))
                    self._threads[-1].start()

    def _pass(self, source: socket.socket, to: socket.socket, swallows: threading.Event) -> None:
        with contextlib.suppress(OSError):  # one side has hung up
            while data := source.recv(65536):
                passed = data if source.getpeername()[:2] != self._to else self._counted(data)
                if not swallows.is_set():
                    to.sendall(passed)
                if self._after is not None and self.passed >= self._after:
                    swallows.set()
            if not swallows.is_set():
                to.shutdown(socket.SHUT_WR)

    def _counted(self, data: bytes) -> bytes:
        """Return what the server may still say of this."""
        left = len(data) if self._after is None else max(0, self._after - self.passed)
        self.passed += len(data[:left])
        return data[:left]
