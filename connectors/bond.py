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
from connectors.errors import ParseError
from connectors.sudo import SudoRule, WordPattern

# As the kernel takes it for a network card, without what would be special in a path.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$"
ROUND_ROBIN = "load balancing (round-robin)"
LACP = "IEEE 802.3ad Dynamic link aggregation"
ACTIVE_BACKUP = "fault-tolerance (active-backup)"

# Bytes that pass anywhere.
SMALL_PACKET_BYTES = 84
PING_COUNT = 2

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
class BondMember:
    """One card of a bond. link: up, down, going down, going back.

    speed: Mbit/s, None if it is not known. failures: since it joined the bond.
    aggregator, partner, state, partner_state: of LACP, and None where that is not told.
    churned: whether LACP gave up waiting for either end.
    """

    name: str
    link_state: str
    speed: int | None
    duplex: str
    failure_count: int
    aggregator: int | None = None
    partner: str | None = None
    state: int | None = None
    partner_state: int | None = None
    is_churned: bool = False

    @property
    def is_up(self) -> bool:
        return self.link_state == "up"

    @property
    def refusing_end(self) -> str:
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
    is_up: bool
    is_monitored: bool
    members: tuple[BondMember, ...]
    active_member: str = ""
    primary_member: str = ""
    aggregator: int | None = None
    port_count: int | None = None
    partner: str | None = None

    @property
    def is_lacp_hidden(self) -> bool:
        """Tell whether the kernel kept from us what only root may read."""
        return self.mode == LACP and self.port_count is None and bool(self.members)

    @property
    def is_without_partner(self) -> bool:
        """Tell whether nobody speaks LACP at the other end."""
        return self.partner == _NOBODY


@dataclass(frozen=True)
class LinkCounters:
    """A network card's counters since it was made, and its MTU."""

    name: str
    mtu: int
    sent_bytes: int
    received_bytes: int
    error_count: int


@dataclass(frozen=True)
class BondSample:
    """A bond and all cards at one time; seconds: since the host started."""

    uptime: float
    bond: Bond
    links: Mapping[str, LinkCounters]


# A switch, and the name of its port that a member's cable ends in.
Cable = tuple[str, str]


def query_bonds() -> Query[tuple[str, ...]]:
    command = Shell(("ls", "-1", _DIRECTORY), hints=(_NO_DRIVER,))
    return Query(command, lambda answer: tuple(answer.split()))


def query_bond(name: str) -> Query[Bond]:
    """Return the bond; without the details of LACP where the login is not root."""
    return Query(
        Shell(("cat", f"{_DIRECTORY}/{name}"), hints=(_NO_BOND,)), partial(parse_bond, name)
    )


def query_bond_as_root(name: str) -> Query[Bond]:
    command = Shell(("cat", f"{_DIRECTORY}/{name}"), root=True, hints=(_NO_BOND,))
    return Query(command, partial(parse_bond, name))


def query_links() -> Query[Mapping[str, LinkCounters]]:
    return Query(Shell(("ip", "-j", "-s", "link", "show")), parse_links)


def query_drivers(cards: Sequence[str]) -> Query[Mapping[str, str]]:
    """Return the driver of each card that has one; cards made of software have none."""
    files = (f"/sys/class/net/{card}/device/uevent" for card in cards)
    command = Shell(("grep", "-sH", "^DRIVER=", "--", *files))
    return Query(command, parse_drivers, statuses=frozenset({0, 1, 2}))


def query_packet_fits(peer: IPv4Address | IPv6Address, mtu: int) -> Query[bool]:
    """Tell whether packets of *mtu* bytes come back from *peer* whole."""
    headers = 28 if peer.version == 4 else 48
    size = str(max(mtu - headers, 0))
    words = (
        "ping",
        "-n",
        "-M",
        "do",
        "-s",
        size,
        "-c",
        str(PING_COUNT),
        "-W",
        "2",
        "--",
        str(peer),
    )
    return Query(Shell(words), parse_ping, statuses=frozenset({0, 1}))


def query_reassembled_count(version: int) -> Query[int]:
    """Return how many packets this host has put together from pieces. version: of IP, 4 or 6."""
    file = "/proc/net/snmp" if version == 4 else "/proc/net/snmp6"
    return Query(Shell(("cat", file)), parse_reassembled)


def query_samples(name: str, *, seconds: int) -> Query[tuple[BondSample, BondSample]]:
    """Look twice, *seconds* apart, with one command."""
    words = ("sh", "-c", _WATCH, "keyturn", f"{_DIRECTORY}/{name}", str(seconds))
    command = Shell(words, hints=(_NO_BOND,), deadline=seconds + 20)
    return Query(command, partial(parse_samples, name))


def query_switch_lag(name: str) -> Query[tuple[str, str] | None]:
    """Return the switch and its link aggregation that the inventory sets for the bond."""
    setting = Setting(f"{name}.switch", "-", pattern=r"-|[a-z0-9-]+ [A-Za-z][A-Za-z-]{0,15}[0-9]+")
    return Query(setting, _parse_switch_lag)


def query_switch_ports(name: str) -> Query[tuple[Cable, ...]]:
    """Return the switches' ports that the inventory sets for the bond, one for each member."""
    one = r"[a-z0-9-]+:[A-Za-z][A-Za-z0-9./-]{0,30}"
    setting = Setting(f"{name}.ports", "-", pattern=rf"-|{one}( {one})*")
    return Query(setting, _parse_switch_ports)


def parse_bond(name: str, answer: str) -> Bond:
    head, *parts = re.split(r"^(?=Slave Interface: )", answer, flags=re.MULTILINE)
    if not head.startswith(_FIRST):
        raise ParseError(f"{name} is not told as a bond: {answer[:100]!r}")
    told = _parse_fields(head)
    polled = told.get("MII Polling Interval (ms)"), told.get("ARP Polling Interval (ms)")
    return Bond(
        name,
        _require_field(told, "Bonding Mode"),
        is_up=_require_field(told, "MII Status") == "up",
        is_monitored=any(interval not in {None, "0"} for interval in polled),
        members=tuple(_parse_member(_parse_fields(part)) for part in parts),
        active_member=_parse_interface(told.get("Currently Active Slave")),
        primary_member=_parse_interface(told.get("Primary Slave")),
        aggregator=_parse_number(told, "Aggregator ID"),
        port_count=_parse_number(told, "Number of ports"),
        partner=told.get("Partner Mac Address"),
    )


def parse_links(answer: str) -> Mapping[str, LinkCounters]:
    try:
        listed = cast("Sequence[Mapping[str, Any]]", json.loads(answer))
        found = {str(link["ifname"]): _parse_link(link) for link in listed}
    except (ValueError, KeyError, TypeError):
        found = {}
    if not found:  # every host has one to itself
        raise ParseError(f"ip lists the network cards in another way: {answer[:100]!r}")
    return found


def parse_drivers(answer: str) -> Mapping[str, str]:
    found = re.findall(
        r"^/sys/class/net/([^/]+)/device/uevent:DRIVER=(\S+)$", answer, re.MULTILINE
    )
    if len(found) != len(answer.splitlines()):
        raise ParseError(f"the drivers of network cards are told in another way: {answer!r}")
    return dict(found)


def parse_ping(answer: str) -> bool:
    """Understand iputils and busybox: all that was sent must have come back."""
    counts = re.search(r"^(\d+) packets transmitted, (\d+) (?:packets )?received", answer, re.M)
    if counts is None:
        raise ParseError(f"ping says something else: {answer[-200:]!r}")
    return int(counts[1]) > 0 and counts[1] == counts[2]


def parse_reassembled(answer: str) -> int:
    """Read /proc/net/snmp, which has a line of names above each of numbers, or snmp6."""
    found = re.search(r"^Ip6ReasmOKs\s+(\d+)$", answer, re.M)
    if found:
        return int(found[1])
    lines = [line.split()[1:] for line in answer.splitlines() if line.startswith("Ip: ")]
    told = dict(zip(*lines, strict=False)) if len(lines) == 2 else {}
    if not told.get("ReasmOKs", "").isdecimal():
        raise ParseError(f"the kernel counts its packets in another way: {answer[:100]!r}")
    return int(told["ReasmOKs"])


def parse_samples(name: str, answer: str) -> tuple[BondSample, BondSample]:
    parts = re.split(r"^== (\d+(?:\.\d+)?)\n", answer, flags=re.MULTILINE)
    if len(parts) != 5:
        raise ParseError(f"{name} was to be seen twice and was not: {answer[-100:]!r}")
    return _parse_sample(name, parts[0], parts[1]), _parse_sample(name, parts[2], parts[3])


def _parse_sample(name: str, text: str, seconds: str) -> BondSample:
    told, bracket, listed = text.partition("\n[")
    bond, links = parse_bond(name, told), parse_links(bracket + listed)
    if absent := {member.name for member in bond.members} - links.keys():
        raise ParseError(f"ip does not list members of {name}: {', '.join(sorted(absent))}")
    return BondSample(float(seconds), bond, links)


def _parse_switch_lag(answer: str) -> tuple[str, str] | None:
    switch, _, lag = answer.partition(" ")
    return (switch, lag) if lag else None


def _parse_switch_ports(answer: str) -> tuple[Cable, ...]:
    ends = (word.partition(":") for word in answer.split())
    return tuple((switch, port) for switch, colon, port in ends if colon)


def _parse_fields(text: str) -> dict[str, str]:
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


def _require_field(told: Mapping[str, str], key: str) -> str:
    if key not in told:
        raise ParseError(f"the bond is told without its {key}: the answer was cut off")
    return told[key]


def _parse_number(told: Mapping[str, str], key: str) -> int | None:
    word = told.get(key)
    if word is not None and not word.isdecimal():
        raise ParseError(f"the bond is told with {key} {word!r}")
    return None if word is None else int(word)


def _parse_member(told: Mapping[str, str]) -> BondMember:
    speed = re.fullmatch(r"(\d+) Mbps", _require_field(told, "Speed"))
    churn = (told.get("Actor Churn State"), told.get("Partner Churn State"))
    return BondMember(
        _require_field(told, "Slave Interface"),
        _require_field(told, "MII Status"),
        int(speed[1]) if speed else None,
        _require_field(told, "Duplex"),
        int(_require_field(told, "Link Failure Count")),
        aggregator=_parse_number(told, "Aggregator ID"),
        partner=told.get("partner system mac address"),
        state=_parse_number(told, "actor port state"),
        partner_state=_parse_number(told, "partner port state"),
        is_churned="churned" in churn,
    )


def _parse_interface(word: str | None) -> str:
    """Return the name of a card: `None` is the kernel's word for none."""
    name = (word or "").split(" ")[0]
    return "" if name == "None" else name


def _parse_link(link: Mapping[str, Any]) -> LinkCounters:
    received, sent = link["stats64"]["rx"], link["stats64"]["tx"]
    return LinkCounters(
        str(link["ifname"]),
        int(link["mtu"]),
        sent_bytes=int(sent["bytes"]),
        received_bytes=int(received["bytes"]),
        error_count=int(received["errors"]) + int(sent["errors"]),
    )


SUDO = (
    SudoRule(
        "/usr/bin/cat", WordPattern(NAME.strip("^$"), prefix=f"{_DIRECTORY}/"), read_only=True
    ),
)
