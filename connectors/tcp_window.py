"""What lets a host's TCP connections have much under way, and how far away a peer is. No I/O.

Formats: tcp(7), ip-route(8), ping(8) of iputils; a link's speed is in Mbit/s in sysfs.
"""

import re
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.trouble import NotUnderstood

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
class Settings:
    """receive, send: the largest buffer of one connection, bytes."""

    scaling: bool
    moderation: bool
    timestamps: bool
    congestion: str
    receive: int
    send: int

    @property
    def receive_window(self) -> int:
        """Bytes that a peer may have under way to us: the kernel keeps half for its overhead."""
        window = self.receive // 2
        return window if self.scaling else min(window, _UNSCALED)

    @property
    def send_window(self) -> int:
        """Bytes that we may have under way to a peer that takes them."""
        window = self.send // 2
        return window if self.scaling else min(window, _UNSCALED)


@dataclass(frozen=True)
class Link:
    """The card that leads to a peer. mbits: its speed in Mbit/s, None if it knows none."""

    card: str
    mbits: int | None


def settings() -> Query[Settings]:
    return Query(Shell(("sysctl", *_KEYS)), parse_settings)


def link(peer: str) -> Query[Link]:
    shell = Shell(("sh", "-c", _ROUTE, "keyturn", peer), hints=(_UNREACHABLE,))
    return Query(shell, parse_link)


def round_trip(peer: str) -> Query[float | None]:
    """Ask for the shortest of five round trips, in seconds; None if the peer does not answer."""
    words = ("ping", "-n", "-q", "-c", "5", "-i", "0.2", "-W", "2", "--", peer)
    return Query(Shell(words), parse_round_trip, frozenset({0, 1}))


def parse_settings(answer: str) -> Settings:
    told = dict(re.findall(r"(?m)^net\.ipv4\.tcp_(\w+) = (.*)$", answer))
    try:
        return Settings(
            scaling=_on(told["window_scaling"]),
            moderation=_on(told["moderate_rcvbuf"]),
            timestamps=_on(told["timestamps"]),
            congestion=told["congestion_control"],
            receive=_largest(told["rmem"]),
            send=_largest(told["wmem"]),
        )
    except (KeyError, ValueError):
        raise NotUnderstood(
            f"sysctl answered {answer[:200]!r} instead of TCP's settings"
        ) from None


def parse_link(answer: str) -> Link:
    lines = answer.splitlines()
    if len(lines) != 2 or not lines[0] or not re.fullmatch(r"-?\d+", lines[1], re.ASCII):
        raise NotUnderstood(f"the host answered {answer[:200]!r} instead of the way to a peer")
    speed = int(lines[1])
    # A card that is not plugged in says the highest number there is.
    return Link(lines[0], speed if 0 < speed < 2**31 else None)


def parse_round_trip(answer: str) -> float | None:
    times = re.search(r"(?m)^rtt min/avg/max/mdev = ([\d.]+)/", answer)
    if times:
        # On loopback it may be told as 0.
        return max(float(times[1]), 0.001) / 1000
    if re.search(r"(?m)^\d+ packets transmitted, 0 received", answer):
        return None
    raise NotUnderstood(f"ping answered {answer[:200]!r}")


def _on(word: str) -> bool:
    # Timestamps may be 2 as well, for without a random offset.
    if word not in ("0", "1", "2"):
        raise ValueError(word)
    return word != "0"


def _largest(words: str) -> int:
    _, _, largest = (int(word) for word in words.split())
    return largest
