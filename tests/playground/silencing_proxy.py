"""A TCP proxy that can fall silent, as a host behind a broken network does."""

import contextlib
import socket
import threading

from tests.playground.tcp_proxy import CopyTask, TcpProxy, hang_up


class SilencingProxy(TcpProxy):
    """Passes on everything until it falls silent.

    A silent proxy keeps its connections open, accepts new ones, and discards what either side
    sends. after: the number of bytes from the server after which it falls silent by itself, or
    hangs up. passed_bytes: how many it has passed on.
    """

    def __init__(
        self, address: str, port: int, *, after: int | None = None, hangs_up: bool = False
    ) -> None:
        super().__init__(address, port)
        self._hangs_up = hangs_up
        # Connections share one event until it is replaced; later connections get the new one.
        self._is_silent = threading.Event()
        self._after = after
        self.passed_bytes = 0

    def fall_silent(self) -> None:
        self._is_silent.set()

    def cut(self) -> None:
        """End every connection, and discard what new ones send."""
        self.fall_silent()
        for connection in self._sockets:
            hang_up(connection)

    def resume(self) -> None:
        """Pass on what new connections send; the others have lost data for good."""
        self._is_silent = threading.Event()

    def _create_copy_tasks(self) -> list[CopyTask]:
        is_silent = self._is_silent
        return [
            lambda client, server: self._copy(client, server, is_silent),
            lambda client, server: self._copy(server, client, is_silent),
        ]

    def _copy(
        self, source: socket.socket, target: socket.socket, is_silent: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):  # one side has hung up
            while data := source.recv(65536):
                is_from_server = source.getpeername()[:2] == self._server_address
                passed = self._take_permitted(data) if is_from_server else data
                if not is_silent.is_set():
                    target.sendall(passed)
                if self._after is not None and self.passed_bytes >= self._after:
                    is_silent.set()
                    if self._hangs_up:
                        hang_up(source)
                        hang_up(target)
            if not is_silent.is_set():
                target.shutdown(socket.SHUT_WR)

    def _take_permitted(self, data: bytes) -> bytes:
        """Return the part of *data* that the server may still send, and count it."""
        limit = len(data) if self._after is None else max(0, self._after - self.passed_bytes)
        self.passed_bytes += len(data[:limit])
        return data[:limit]
