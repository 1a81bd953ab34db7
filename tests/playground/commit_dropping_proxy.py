"""A proxy in front of PostgreSQL that drops the response to a commit, or to the wait for it."""

import contextlib
import socket
import threading

from tests.playground.tcp_proxy import CopyTask, TcpProxy, hang_up

# The CommandComplete message of a commit, whichever protocol it was sent by.
_COMMIT_COMPLETE = b"C\x00\x00\x00\x0bCOMMIT\x00"
# The result of the statement by which commits that did not wait for the disk become durable.
_FLUSHED = b"pg_logical_emit_message"


class CommitDroppingProxy(TcpProxy):
    """Passes on everything but the response to a chosen commit or wait; then it hangs up.

    port: of the server. dropped_count: the responses that were dropped so far.
    """

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self._lock = threading.Lock()
        self._commits_left: int | None = None
        self.dropped_count = 0

    def drop_response(self, n: int) -> None:
        """Drop the response to the nth commit from now on."""
        with self._lock:
            self._commits_left = n

    def stop_dropping(self) -> bool:
        """Drop no response; return whether one was still to be dropped."""
        with self._lock:
            is_pending, self._commits_left = self._commits_left is not None, None
            return is_pending

    def _create_copy_tasks(self) -> list[CopyTask]:
        return [self._copy_requests, self._copy_responses]

    def _copy_requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # one side has hung up
            while data := client.recv(65536):
                server.sendall(data)
        hang_up(server)

    def _copy_responses(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                # The server has responded, so it is done by now.
                if (_COMMIT_COMPLETE in data or _FLUSHED in data) and self._is_chosen():
                    break
                client.sendall(data)
        hang_up(client)
        hang_up(server)

    def _is_chosen(self) -> bool:
        with self._lock:
            if self._commits_left is None:
                return False
            self._commits_left -= 1
            if self._commits_left:
                return False
            self._commits_left = None
            self.dropped_count += 1
            return True
