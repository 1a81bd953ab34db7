"""What lets a host's TCP connections have much under way, and how far away a peer is. No I/O.

Formats: tcp(7), ip-route(8), ping(8) of iputils; a link's speed is in Mbit/s in sysfs.
"""

import re
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError

_KEYS = (
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
)
# $1: the peer. Virtual cards know no speed, and some fail to tell.
_ROUTE = (
    'said=$(ip -o route get "$1") || exit 1; '
    'case $said in *" dev "*) card=${said##* dev };; *) card=;; esac; card=${card%% *}; '
    '{ read -r speed <"/sys/class/net/$card/speed"; } 2>/dev/null || speed=-1; '
    'echo "$card"; echo "$speed"'
)
_UNREACHABLE = Hint(r"unreachable|Network is down", "the host has no route to this peer")

# Without window scaling the field of the header holds no more.
_UNSCALED = 65_535


@dataclass(frozen=True)
class TcpSettings:
    """receive, send: the largest buffer of one connection, bytes."""

    scaling: bool
    moderation: bool
    timestamps: bool
    congestion: str
    receive_buffer: int
    send_buffer: int

    @property
    def receive_window(self) -> int:
        """Bytes that a peer may have under way to us: the kernel keeps half for its overhead."""
        window = self.receive_buffer // 2
        return window if self.scaling else min(window, _UNSCALED)

    @property
    def send_window(self) -> int:
        """Bytes that we may have under way to a peer that takes them."""
        window = self.send_buffer // 2
        return window if self.scaling else min(window, _UNSCALED)


@dataclass(frozen=True)
class PeerRoute:
    """The card that leads to a peer. mbits: its speed in Mbit/s, None if it knows none."""

    interface: str
    speed_mbits: int | None


def query_settings() -> Query[TcpSettings]:
    return Query(Shell(("sysctl", *_KEYS)), parse_settings)


def query_route(peer: str) -> Query[PeerRoute]:
    shell = Shell(("sh", "-c", _ROUTE, "keyturn", peer), hints=(_UNREACHABLE,))
    return Query(shell, parse_route)


def query_round_trip(peer: str) -> Query[float | None]:
    """Query the shortest of five round trips, in seconds; None if the peer does not answer."""
    words = ("ping", "-n", "-q", "-c", "5", "-i", "0.2", "-W", "2", "--", peer)
    return Query(Shell(words), parse_round_trip, frozenset({0, 1}))


def parse_settings(answer: str) -> TcpSettings:
    told = dict(re.findall(r"(?m)^net\.ipv4\.tcp_(\w+) = (.*)$", answer))
    try:
        return TcpSettings(
            scaling=_parse_switch(told["window_scaling"]),
            moderation=_parse_switch(told["moderate_rcvbuf"]),
            timestamps=_parse_switch(told["timestamps"]),
            congestion=told["congestion_control"],
            receive_buffer=_parse_largest(told["rmem"]),
            send_buffer=_parse_largest(told["wmem"]),
        )
    except (KeyError, ValueError):
        raise ParseError(f"sysctl answered {answer[:200]!r} instead of TCP's settings") from None


def parse_route(answer: str) -> PeerRoute:
    lines = answer.splitlines()
    if len(lines) != 2 or not lines[0] or not re.fullmatch(r"-?\d+", lines[1], re.ASCII):
        raise ParseError(f"the host answered {answer[:200]!r} instead of the way to a peer")
    speed = int(lines[1])
    # A card that is not plugged in says the highest number there is.
    return PeerRoute(lines[0], speed if 0 < speed < 2**31 else None)


def parse_round_trip(answer: str) -> float | None:
    times = re.search(r"(?m)^rtt min/avg/max/mdev = ([\d.]+)/", answer)
    if times:
        # On loopback it may be told as 0.
        return max(float(times[1]), 0.001) / 1000
    if re.search(r"(?m)^\d+ packets transmitted, 0 received", answer):
        return None
    raise ParseError(f"ping answered {answer[:200]!r}")


def _parse_switch(word: str) -> bool:
    # Timestamps may be 2 as well, for without a random offset.
    if word not in ("0", "1", "2"):
        raise ValueError(word)
    return word != "0"


def _parse_largest(words: str) -> int:
    _, _, largest = (int(word) for word in words.split())
    return largest
