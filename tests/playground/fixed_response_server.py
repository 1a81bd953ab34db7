"""An HTTPS server that returns the given bytes, valid or not."""

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from tests.playground.tls import create_certificate

# What is sent in answer: all of it, or as a function sends it.
Reply = bytes | Callable[[ssl.SSLSocket], None]


def build_response(
    body: bytes,
    *,
    kind: str = "application/rss+xml",
    status: str = "200 OK",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return a whole HTTP answer; *headers* may contradict the rest."""
    given = {"Content-Type": kind, "Content-Length": str(len(body))} | dict(headers or {})
    lines = [f"HTTP/1.1 {status}", "Connection: close", *map(": ".join, given.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class FixedResponseServer:
    """Serves on a free port of 127.0.0.1, with a certificate that its own authority signed.

    authority: the file that a client must trust. names: what the certificate is for.
    replies: by path; asking for another ends the connection. asked: the paths asked for.
    """

    def __init__(self, directory: Path, *, names: tuple[str, ...] = ("localhost",)) -> None:
        made = create_certificate(directory, names=names)
        self.authority = made.authority
        self.replies: dict[str, Reply] = {}
        self.asked: list[str] = []
        self.heads: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(made.chain)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def url(self, path: str, *, host: str = "localhost") -> str:
        return f"https://{host}:{self.port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone would not wake who waits for a connection.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        with (
            contextlib.suppress(OSError),
            connection,
            self._context.wrap_socket(connection, server_side=True) as tls,
        ):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := tls.recv(4096)):
                    return
                head += piece
            head, _, body = head.partition(b"\r\n\r\n")
            head += b"\r\n\r\n"
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            while length and len(body) < int(length[1]) and (piece := tls.recv(4096)):
                body += piece  # what is left unread would reset the connection
            self.heads.append(head.decode())
            self.asked.append(head.split()[1].decode())
            reply = self.replies.get(self.asked[-1], b"")
            if callable(reply):
                reply(tls)
            else:
                tls.sendall(reply)
