"""TCP window settings of a host, and the route and round trip time to a peer. No I/O.

Formats: tcp(7), ip-route(8), ping(8) of iputils; a link's speed is in Mbit/s in sysfs.
"""

import re
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.script import load_script

_KEYS = (
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
)
_ROUTE = load_script("peer-route", argument_count=1)
_UNREACHABLE = Hint(r"unreachable|Network is down", "the host has no route to this peer")

# The largest window without scaling, by the size of the header's field.
_UNSCALED = 65_535


@dataclass(frozen=True)
class TcpSettings:
    """The kernel's TCP settings that limit throughput."""

    scaling: bool
    """Window scaling."""
    moderation: bool
    """Automatic tuning of receive buffers."""
    timestamps: bool
    congestion: str
    """The congestion control algorithm."""
    receive_buffer: int
    """The largest receive buffer of one connection, in bytes."""
    send_buffer: int
    """The largest send buffer of one connection, in bytes."""

    @property
    def receive_window(self) -> int:
        """Bytes in flight from a peer: the kernel uses half of the buffer for overhead."""
        window = self.receive_buffer // 2
        return window if self.scaling else min(window, _UNSCALED)

    @property
    def send_window(self) -> int:
        """Bytes in flight to a peer that accepts them."""
        window = self.send_buffer // 2
        return window if self.scaling else min(window, _UNSCALED)


@dataclass(frozen=True)
class PeerRoute:
    """The network card on the route to a peer."""

    interface: str
    speed_mbits: int | None
    """Its speed in Mbit/s, None if unknown."""


def query_settings() -> Query[TcpSettings]:
    return Query(Shell(("sysctl", *_KEYS)), parse_settings)


def query_route(peer: str) -> Query[PeerRoute]:
    shell = Shell((_ROUTE, peer), hints=(_UNREACHABLE,))
    return Query(shell, parse_route)


def query_round_trip(peer: str) -> Query[float | None]:
    """Query the shortest of five round trips, in seconds; None if the peer does not answer."""
    words = ("ping", "-n", "-q", "-c", "5", "-i", "0.2", "-W", "2", "--", peer)
    return Query(Shell(words), parse_round_trip, frozenset({0, 1}))


def parse_settings(answer: str) -> TcpSettings:
    settings = dict(re.findall(r"(?m)^net\.ipv4\.tcp_(\w+) = (.*)$", answer))
    try:
        return TcpSettings(
            scaling=_parse_switch(settings["window_scaling"]),
            moderation=_parse_switch(settings["moderate_rcvbuf"]),
            timestamps=_parse_switch(settings["timestamps"]),
            congestion=settings["congestion_control"],
            receive_buffer=_parse_largest(settings["rmem"]),
            send_buffer=_parse_largest(settings["wmem"]),
        )
    except (KeyError, ValueError):
        raise ParseError(f"sysctl printed {answer[:200]!r} instead of TCP settings") from None


def parse_route(answer: str) -> PeerRoute:
    lines = answer.splitlines()
    if len(lines) != 2 or not lines[0] or not re.fullmatch(r"-?\d+", lines[1], re.ASCII):
        raise ParseError(f"the host printed {answer[:200]!r} instead of a route")
    speed = int(lines[1])
    # The speed of a card without a cable is the highest possible number.
    return PeerRoute(lines[0], speed if 0 < speed < 2**31 else None)


def parse_round_trip(answer: str) -> float | None:
    """Parse the summary of iputils, inetutils, busybox and the BSDs."""
    times = re.search(r"(?m)^(?:rtt|round-trip) min/avg/max(?:/\w+)? = ([\d.]+)/", answer)
    if times:
        # On loopback it may be printed as 0.
        return max(float(times[1]), 0.001) / 1000
    if re.search(r"(?m)^\d+ packets transmitted, 0 (?:packets )?received", answer):
        return None
    raise ParseError(f"ping printed {answer[:200]!r} instead of round trip times")


def _parse_switch(word: str) -> bool:
    # Timestamps may also be 2: without a random offset.
    if word not in ("0", "1", "2"):
        raise ValueError(word)
    return word != "0"


def _parse_largest(words: str) -> int:
    _, _, largest = (int(word) for word in words.split())
    return largest
