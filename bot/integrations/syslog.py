"""Send checkpoints of the change log to a log server (RFC 5424)."""

import os
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from bot.audit.checkpoints import Checkpoint
from bot.model.times import to_datetime

_TIMEOUT_SECONDS = 2.0
_DEFAULT_PORTS = {"udp": 514, "tcp": 601}
# Facility log audit (13), severity notice (5).
_PRIORITY = 13 * 8 + 5


@dataclass(frozen=True)
class LogServer:
    """A log server that receives checkpoints."""

    scheme: str
    """udp, tcp or unix."""
    address: tuple[str, int] | str
    """Host and port, or the path of a socket."""

    @staticmethod
    def parse_address(address: str) -> "LogServer":
        """Parse `udp://host[:port]`, `tcp://host[:port]` or `unix:///dev/log`."""
        parts = urlsplit(address)
        if parts.scheme == "unix" and parts.path:
            return LogServer("unix", parts.path)
        if parts.scheme in _DEFAULT_PORTS and parts.hostname:
            return LogServer(
                parts.scheme, (parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme])
            )
        raise ValueError("a log server is udp://HOST[:PORT], tcp://HOST[:PORT] or unix:///PATH")

    def send_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Send one message. Raises OSError if it is not accepted within two seconds."""
        message = _format_message(checkpoint)
        if isinstance(self.address, str):
            _send_locally(self.address, message)
        elif self.scheme == "udp":
            _send_datagram(self.address, message)
        else:
            with socket.create_connection(self.address, timeout=_TIMEOUT_SECONDS) as line:
                # RFC 6587: the length comes before each message.
                line.sendall(b"%d %s" % (len(message), message))


def _format_message(checkpoint: Checkpoint) -> bytes:
    when = to_datetime(checkpoint.at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    here = socket.gethostname() or "-"
    head = f"<{_PRIORITY}>1 {when} {here} keyturn {os.getpid()} checkpoint - "
    return (head + checkpoint.line).encode()


def _send_datagram(host_and_port: tuple[str, int], message: bytes) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(
        *host_and_port, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as line:
        line.settimeout(_TIMEOUT_SECONDS)
        line.sendto(message, address)


def _send_locally(path: str, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.settimeout(_TIMEOUT_SECONDS)
        line.connect(path)
        line.send(message)
