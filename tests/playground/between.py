"""Something between a program and a TCP server, on a free loopback port of its own."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self


class Between:
    """Takes connections and makes one to the server for each; what is passed on is for others.

    address, port: of the server.
    """

    def __init__(self, address: str, port: int) -> None:
        self._to = (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._streams: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # First the listener, so that no stream is added meanwhile.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for stream in self._streams:
            hang_up(stream)
        for thread in self._threads[1:]:
            thread.join()
        for stream in (*self._streams, self._listener):
            stream.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # the listener was shut down
            while True:
                guest = self._listener.accept()[0]
                works = self._works()
                self._streams.append(guest)
                server = socket.create_connection(self._to)
                self._streams.append(server)
                for work in works:
                    thread = threading.Thread(target=work, args=(guest, server), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _works(self) -> list[Callable[[socket.socket, socket.socket], None]]:
        """Return what is to be done with a new connection, each by a thread of its own."""
        raise NotImplementedError


def hang_up(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
