"""What Linux says of a network bond, of its members and of the way to the other end. No I/O.

https://www.kernel.org/doc/Documentation/networking/bonding.rst
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Any, cast

from connectors.command import Hint, Query, Setting, Shell
from connectors.sudo import Fits, SudoRule
from connectors.trouble import NotUnderstood

# As the kernel takes it for a network card, without what would be special in a path.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$"
ROUND_ROBIN = "load balancing (round-robin)"
LACP = "IEEE 802.3ad Dynamic link aggregation"
ACTIVE_BACKUP = "fault-tolerance (active-backup)"

# Bytes that pass anywhere.
SMALL = 84
PINGS = 2

_DIRECTORY = "/proc/net/bonding"
_FIRST = "Ethernet Channel Bonding Driver: "
_NOBODY = "00:00:00:00:00:00"
# Bits of an LACP port's state: in sync, collecting, distributing.
_CARRIES = 0x08 | 0x10 | 0x20
_NO_DRIVER = Hint(
    r"cannot access '?/proc/net/bonding|/proc/net/bonding: No such file",
    "this host has no bond: its bonding driver is not loaded",
)
_NO_BOND = Hint(r"/proc/net/bonding/\S+: No such file", "this host has no bond of that name")
# Two looks, so many seconds apart, each with the time since the host started.
_WATCH = (
    'look() { cat "$1" && ip -j -s link show && read -r up _ </proc/uptime && echo "== $up"; }; '
    'look "$1" && sleep "$2" && look "$1"'
)


@dataclass(frozen=True)
class Member:
    """One card of a bond. link: up, down, going down, going back.

    speed: Mbit/s, None if it is not known. failures: since it joined the bond.
    aggregator, partner, state, partner_state: of LACP, and None where that is not told.
    churned: whether LACP gave up waiting for either end.
    """

    name: str
    link: str
    speed: int | None
    duplex: str
    failures: int
    aggregator: int | None = None
    partner: str | None = None
    state: int | None = None
    partner_state: int | None = None
    churned: bool = False

    @property
    def up(self) -> bool:
        return self.link == "up"

    @property
    def refused_by(self) -> str:
        """Which end of LACP keeps it out of the aggregation: `this host`, `the switch`, or ""."""
        if self.state is not None and self.state & _CARRIES != _CARRIES:
            return "this host"
        if self.partner_state is not None and self.partner_state & _CARRIES != _CARRIES:
            return "the switch"
        return ""


@dataclass(frozen=True)
class Bond:
    """A bond. mode: in the kernel's words. watched: whether it notices a dead link at all.

    active, primary: of the modes that use one card at a time, "" otherwise.
    aggregator, ports, partner: of LACP's active aggregation; None where that is not told.
    """

    name: str
    mode: str
    up: bool
    watched: bool
    members: tuple[Member, ...]
    active: str = ""
    primary: str = ""
    aggregator: int | None = None
    ports: int | None = None
    partner: str | None = None

    @property
    def hides_lacp(self) -> bool:
        """Tell whether the kernel kept from us what only root may read."""
        return self.mode == LACP and self.ports is None and bool(self.members)

    @property
    def alone(self) -> bool:
        """Tell whether nobody speaks LACP at the other end."""
        return self.partner == _NOBODY


@dataclass(frozen=True)
class Link:
    """A network card's counters since it was made, and its MTU."""

    name: str
    mtu: int
    sent: int
    received: int
    errors: int


@dataclass(frozen=True)
class Look:
    """A bond and all cards at one time; seconds: since the host started."""

    seconds: float
    bond: Bond
    links: Mapping[str, Link]


# A switch, and the name of its port that a member's cable ends in.
Cable = tuple[str, str]


def bonds() -> Query[tuple[str, ...]]:
    command = Shell(("ls", "-1", _DIRECTORY), hints=(_NO_DRIVER,))
    return Query(command, lambda answer: tuple(answer.split()))


def bond(name: str) -> Query[Bond]:
    """Return the bond; without the details of LACP where the login is not root."""
    return Query(
        Shell(("cat", f"{_DIRECTORY}/{name}"), hints=(_NO_BOND,)), partial(parse_bond, name)
    )


def bond_as_root(name: str) -> Query[Bond]:
    command = Shell(("cat", f"{_DIRECTORY}/{name}"), root=True, hints=(_NO_BOND,))
    return Query(command, partial(parse_bond, name))


def links() -> Query[Mapping[str, Link]]:
    return Query(Shell(("ip", "-j", "-s", "link", "show")), parse_links)


def drivers(cards: Sequence[str]) -> Query[Mapping[str, str]]:
    """Return the driver of each card that has one; cards made of software have none."""
    files = (f"/sys/class/net/{card}/device/uevent" for card in cards)
    command = Shell(("grep", "-sH", "^DRIVER=", "--", *files))
    return Query(command, parse_drivers, statuses=frozenset({0, 1, 2}))


def fits(peer: IPv4Address | IPv6Address, mtu: int) -> Query[bool]:
    """Tell whether packets of *mtu* bytes come back from *peer* whole."""
    headers = 28 if peer.version == 4 else 48
    size = str(max(mtu - headers, 0))
    words = ("ping", "-n", "-M", "do", "-s", size, "-c", str(PINGS), "-W", "2", "--", str(peer))
    return Query(Shell(words), parse_ping, statuses=frozenset({0, 1}))


def reassembled(version: int) -> Query[int]:
    """Return how many packets this host has put together from pieces. version: of IP, 4 or 6."""
    file = "/proc/net/snmp" if version == 4 else "/proc/net/snmp6"
    return Query(Shell(("cat", file)), parse_reassembled)


def watched(name: str, *, seconds: int) -> Query[tuple[Look, Look]]:
    """Look twice, *seconds* apart, with one command."""
    words = ("sh", "-c", _WATCH, "keyturn", f"{_DIRECTORY}/{name}", str(seconds))
    command = Shell(words, hints=(_NO_BOND,), deadline=seconds + 20)
    return Query(command, partial(parse_looks, name))


def far_end(name: str) -> Query[tuple[str, str] | None]:
    """Return the switch and its link aggregation that the inventory sets for the bond."""
    setting = Setting(f"{name}.switch", "-", pattern=r"-|[a-z0-9-]+ [A-Za-z][A-Za-z-]{0,15}[0-9]+")
    return Query(setting, _parse_far_end)


def cables(name: str) -> Query[tuple[Cable, ...]]:
    """Return the switches' ports that the inventory sets for the bond, one for each member."""
    one = r"[a-z0-9-]+:[A-Za-z][A-Za-z0-9./-]{0,30}"
    setting = Setting(f"{name}.ports", "-", pattern=rf"-|{one}( {one})*")
    return Query(setting, _parse_cables)


def parse_bond(name: str, answer: str) -> Bond:
    head, *parts = re.split(r"^(?=Slave Interface: )", answer, flags=re.MULTILINE)
    if not head.startswith(_FIRST):
        raise NotUnderstood(f"{name} is not told as a bond: {answer[:100]!r}")
    told = _fields(head)
    polled = told.get("MII Polling Interval (ms)"), told.get("ARP Polling Interval (ms)")
    return Bond(
        name,
        _need(told, "Bonding Mode"),
        up=_need(told, "MII Status") == "up",
        watched=any(interval not in {None, "0"} for interval in polled),
        members=tuple(_member(_fields(part)) for part in parts),
        active=_card(told.get("Currently Active Slave")),
        primary=_card(told.get("Primary Slave")),
        aggregator=_number(told, "Aggregator ID"),
        ports=_number(told, "Number of ports"),
        partner=told.get("Partner Mac Address"),
    )


def parse_links(answer: str) -> Mapping[str, Link]:
    try:
        listed = cast("Sequence[Mapping[str, Any]]", json.loads(answer))
        found = {str(link["ifname"]): _link(link) for link in listed}
    except (ValueError, KeyError, TypeError):
        found = {}
    if not found:  # every host has one to itself
        raise NotUnderstood(f"ip lists the network cards in another way: {answer[:100]!r}")
    return found


def parse_drivers(answer: str) -> Mapping[str, str]:
    found = re.findall(
        r"^/sys/class/net/([^/]+)/device/uevent:DRIVER=(\S+)$", answer, re.MULTILINE
    )
    if len(found) != len(answer.splitlines()):
        raise NotUnderstood(f"the drivers of network cards are told in another way: {answer!r}")
    return dict(found)


def parse_ping(answer: str) -> bool:
    """Understand iputils and busybox: all that was sent must have come back."""
    counts = re.search(r"^(\d+) packets transmitted, (\d+) (?:packets )?received", answer, re.M)
    if counts is None:
        raise NotUnderstood(f"ping says something else: {answer[-200:]!r}")
    return int(counts[1]) > 0 and counts[1] == counts[2]


def parse_reassembled(answer: str) -> int:
    """Read /proc/net/snmp, which has a line of names above each of numbers, or snmp6."""
    found = re.search(r"^Ip6ReasmOKs\s+(\d+)$", answer, re.M)
    if found:
        return int(found[1])
    lines = [line.split()[1:] for line in answer.splitlines() if line.startswith("Ip: ")]
    told = dict(zip(*lines, strict=False)) if len(lines) == 2 else {}
    if not told.get("ReasmOKs", "").isdecimal():
        raise NotUnderstood(f"the kernel counts its packets in another way: {answer[:100]!r}")
    return int(told["ReasmOKs"])


def parse_looks(name: str, answer: str) -> tuple[Look, Look]:
    parts = re.split(r"^== (\d+(?:\.\d+)?)\n", answer, flags=re.MULTILINE)
    if len(parts) != 5:
        raise NotUnderstood(f"{name} was to be seen twice and was not: {answer[-100:]!r}")
    return _look(name, parts[0], parts[1]), _look(name, parts[2], parts[3])


def _look(name: str, text: str, seconds: str) -> Look:
    told, bracket, listed = text.partition("\n[")
    bond, links = parse_bond(name, told), parse_links(bracket + listed)
    if absent := {member.name for member in bond.members} - links.keys():
        raise NotUnderstood(f"ip does not list members of {name}: {', '.join(sorted(absent))}")
    return Look(float(seconds), bond, links)


def _parse_far_end(answer: str) -> tuple[str, str] | None:
    switch, _, lag = answer.partition(" ")
    return (switch, lag) if lag else None


def _parse_cables(answer: str) -> tuple[Cable, ...]:
    ends = (word.partition(":") for word in answer.split())
    return tuple((switch, port) for switch, colon, port in ends if colon)


def _fields(text: str) -> dict[str, str]:
    """Return `Key: value` lines; those of a partner's LACP data have the key `partner …`."""
    fields: dict[str, str] = {}
    side = ""
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if line.startswith("details "):
            side = line.split()[1] + " "
        elif colon:
            # Only the kernel's indented lines belong to a side.
            fields[(side if line.startswith(" ") else "") + key.strip()] = value.strip()
    return fields


def _need(told: Mapping[str, str], key: str) -> str:
    if key not in told:
        raise NotUnderstood(f"the bond is told without its {key}: the answer was cut off")
    return told[key]


def _number(told: Mapping[str, str], key: str) -> int | None:
    word = told.get(key)
    if word is not None and not word.isdecimal():
        raise NotUnderstood(f"the bond is told with {key} {word!r}")
    return None if word is None else int(word)


def _member(told: Mapping[str, str]) -> Member:
    speed = re.fullmatch(r"(\d+) Mbps", _need(told, "Speed"))
    churn = (told.get("Actor Churn State"), told.get("Partner Churn State"))
    return Member(
        _need(told, "Slave Interface"),
        _need(told, "MII Status"),
        int(speed[1]) if speed else None,
        _need(told, "Duplex"),
        int(_need(told, "Link Failure Count")),
        aggregator=_number(told, "Aggregator ID"),
        partner=told.get("partner system mac address"),
        state=_number(told, "actor port state"),
        partner_state=_number(told, "partner port state"),
        churned="churned" in churn,
    )


def _card(word: str | None) -> str:
    """Return the name of a card: `None` is the kernel's word for none."""
    name = (word or "").split(" ")[0]
    return "" if name == "None" else name


def _link(link: Mapping[str, Any]) -> Link:
    received, sent = link["stats64"]["rx"], link["stats64"]["tx"]
    return Link(
        str(link["ifname"]),
        int(link["mtu"]),
        sent=int(sent["bytes"]),
        received=int(received["bytes"]),
        errors=int(received["errors"]) + int(sent["errors"]),
    )


SUDO = (SudoRule("/usr/bin/cat", Fits(NAME.strip("^$"), before=f"{_DIRECTORY}/"), reads=True),)
