"""A log server that is told how far the change log is, as RFC 5424 has it."""

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from bot.audit.checkpoints import Checkpoint

_SECONDS = 2.0
_PORTS = {"udp": 514, "tcp": 601}
# Facility log audit (13), severity notice (5).
_PRIORITY = 13 * 8 + 5


@dataclass(frozen=True)
class LogServer:
    """scheme: udp, tcp or unix. place: host and port, or the path of a socket."""

    scheme: str
    place: tuple[str, int] | str

    @staticmethod
    def at(address: str) -> "LogServer":
        """Read `udp://host[:port]`, `tcp://host[:port]` or `unix:///dev/log`."""
        parts = urlsplit(address)
        if parts.scheme == "unix" and parts.path:
            return LogServer("unix", parts.path)
        if parts.scheme in _PORTS and parts.hostname:
            return LogServer(parts.scheme, (parts.hostname, parts.port or _PORTS[parts.scheme]))
        raise ValueError("a log server is udp://HOST[:PORT], tcp://HOST[:PORT] or unix:///PATH")

    def tell(self, point: Checkpoint) -> None:
        """Send one message. Raises OSError if nobody takes it within two seconds."""
        message = _message(point)
        if isinstance(self.place, str):
            _send_locally(self.place, message)
        elif self.scheme == "udp":
            _send_datagram(self.place, message)
        else:
            with socket.create_connection(self.place, timeout=_SECONDS) as line:
                # RFC 6587: the length stands before each message.
                line.sendall(b"%d %s" % (len(message), message))


def _message(point: Checkpoint) -> bytes:
    when = datetime.fromtimestamp(point.at / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    here = socket.gethostname() or "-"
    head = f"<{_PRIORITY}>1 {when} {here} keyturn {os.getpid()} checkpoint - "
    return (head + point.line).encode()


def _send_datagram(place: tuple[str, int], message: bytes) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(*place, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as line:
        line.settimeout(_SECONDS)
        line.sendto(message, address)


def _send_locally(path: str, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.settimeout(_SECONDS)
        line.connect(path)
        line.send(message)
