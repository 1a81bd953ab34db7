"""A TCP proxy on a free loopback port. Subclasses decide what is passed on."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

# Copies from one socket to the other, in a thread of its own.
CopyTask = Callable[[socket.socket, socket.socket], None]


class TcpProxy:
    """Accepts connections and opens one to the server for each.

    address, port: of the server.
    """

    def __init__(self, address: str, port: int) -> None:
        self._server_address = (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # First the listener, so that no socket is added meanwhile.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for one in self._sockets:
            hang_up(one)
        for thread in self._threads[1:]:
            thread.join()
        for one in (*self._sockets, self._listener):
            one.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # the listener was shut down
            while True:
                client = self._listener.accept()[0]
                tasks = self._create_copy_tasks()
                self._sockets.append(client)
                server = socket.create_connection(self._server_address)
                self._sockets.append(server)
                for task in tasks:
                    thread = threading.Thread(target=task, args=(client, server), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _create_copy_tasks(self) -> list[CopyTask]:
        """Return the tasks for a new connection, which get its client and its server socket."""
        raise NotImplementedError


def hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
