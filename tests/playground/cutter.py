"""A cutter between a program and PostgreSQL: a commit gets through, and its answer does not."""

import contextlib
import socket
import threading
from typing import Self

# How psycopg ends a transaction: a simple query of that one word.
_COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"


class Cutter:
    """Passes everything on, on a free loopback port of its own, but for one answer.

    port: of the server. cuts: how many answers were lost, ever.
    """

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._streams: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
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

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # First the listener, so that no stream is added meanwhile.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for stream in self._streams:
            _hang_up(stream)
        for thread in self._threads[1:]:
            thread.join()
        for stream in (*self._streams, self._listener):
            stream.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # the listener was shut down
            while True:
                guest = self._listener.accept()[0]
                server = socket.create_connection(self._to)
                self._streams += [guest, server]
                deaf = threading.Event()
                for work in (self._ask, self._answer):
                    thread = threading.Thread(target=work, args=(guest, server, deaf), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _ask(self, guest: socket.socket, server: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):  # one side has hung up
            while data := guest.recv(65536):
                if data.endswith(_COMMIT) and self._is_the_one():
                    deaf.set()
                server.sendall(data)
        _hang_up(server)

    def _answer(self, guest: socket.socket, server: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                # The server has answered, so what was committed is durable by now.
                if deaf.is_set():
                    break
                guest.sendall(data)
        _hang_up(guest)
        _hang_up(server)

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


def _hang_up(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
