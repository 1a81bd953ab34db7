"""Linux network bonds: their members, and the path to the other end. No I/O.

https://www.kernel.org/doc/Documentation/networking/bonding.rst; the file's format is that of the
kernel's drivers/net/bonding/bond_procfs.c, since Linux 3.10. Links and routes are the JSON
of iproute2 (ip/iproute.c).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Any, cast

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.rows import NamedRows, OddRow, Rows, make_odd_row, parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern

# The name of a network card, without characters that are special in a path.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$"
ROUND_ROBIN = "load balancing (round-robin)"
LACP = "IEEE 802.3ad Dynamic link aggregation"
ACTIVE_BACKUP = "fault-tolerance (active-backup)"

# A packet size that passes every network.
SMALL_PACKET_BYTES = 84
PING_COUNT = 2

_DIRECTORY = "/proc/net/bonding"
_FIRST = "Ethernet Channel Bonding Driver: "
# What follows the name of the mode where the bond does not keep one MAC address.
_FAIL_OVER_MAC = re.compile(r" \(fail_over_mac \w+\)$")
_NO_AGGREGATOR = re.compile(r"^bond \S+ has no active aggregator$", re.MULTILINE)
_NO_PARTNER = "00:00:00:00:00:00"
# Bits of an LACP port's state: in sync, collecting, distributing.
_CARRIES = 0x08 | 0x10 | 0x20
_NO_DRIVER = Hint(
    r"cannot access '?/proc/net/bonding|/proc/net/bonding: No such file",
    "this host has no bond: its bonding driver is not loaded",
)
_NO_ROUTE = Hint(
    r"RTNETLINK answers: (Network is unreachable|No route to host|Invalid argument)",
    "the host has no route to this peer",
)
_NO_BOND = Hint(r"/proc/net/bonding/\S+: No such file", "this host has no bond of that name")
_WATCH = load_script("bond-watch", argument_count=2)


@dataclass(frozen=True)
class BondMember:
    """One card of a bond. LACP's fields are None where the kernel does not show them."""

    name: str
    link_state: str
    """up, down, going down, or going back."""
    speed: int | None
    """Mbit/s, None if unknown."""
    duplex: str
    failure_count: int
    """Link failures since it joined the bond."""
    aggregator: int | None = None
    """LACP's aggregator ID."""
    partner: str | None = None
    """The MAC address of LACP's partner."""
    state: int | None = None
    """LACP's port state at this end, as bits."""
    partner_state: int | None = None
    """LACP's port state at the other end, as bits."""
    is_churned: bool = False
    """Whether LACP gave up waiting for either end."""

    @property
    def is_up(self) -> bool:
        return self.link_state == "up"

    @property
    def refusing_end(self) -> str:
        """Which end keeps it out of LACP's aggregation: `this host`, `the switch`, or ""."""
        if self.state is not None and self.state & _CARRIES != _CARRIES:
            return "this host"
        if self.partner_state is not None and self.partner_state & _CARRIES != _CARRIES:
            return "the switch"
        return ""


@dataclass(frozen=True)
class Bond:
    """A bond. LACP's fields are of its active aggregation, None where they are not shown."""

    name: str
    mode: str
    """The kernel's name of the mode, such as `fault-tolerance (active-backup)`."""
    is_up: bool
    is_monitored: bool
    """Whether the bond checks its links (MII or ARP monitoring)."""
    members: tuple[BondMember, ...]
    active_member: str = ""
    """The card in use, in modes that use one at a time; else ""."""
    primary_member: str = ""
    """The preferred card, in modes that use one at a time; else ""."""
    aggregator: int | None = None
    """LACP's aggregator ID; 0 if no aggregation is active."""
    port_count: int | None = None
    """How many ports LACP's aggregation has."""
    partner: str | None = None
    """The MAC address of LACP's partner."""
    hash_policy: str = ""
    """What chooses the member for a packet, such as layer3+4; "" in modes without a choice."""
    lacp_rate: str = ""
    """How often the partner is to send LACP's packets: slow or fast; "" without LACP."""

    @property
    def is_lacp_hidden(self) -> bool:
        """Whether the kernel hides LACP's details, which only root can read."""
        return self.mode == LACP and self.port_count is None and bool(self.members)

    @property
    def is_without_partner(self) -> bool:
        """Whether the other end does not use LACP."""
        return self.partner == _NO_PARTNER

    def is_carrying(self, member: BondMember) -> bool:
        """Return whether a member carries traffic, or would as the active one."""
        is_apart = self.aggregator is not None and member.aggregator != self.aggregator
        return member.is_up and not is_apart and not member.refusing_end


@dataclass(frozen=True)
class LinkCounters:
    """A network card's MTU, and its counters since it was created."""

    name: str
    mtu: int
    sent_bytes: int
    received_bytes: int
    error_count: int
    is_enabled: bool = True
    """Whether it is set up (`ip link set up`), with or without a link."""
    parent: str = ""
    """The card that it is on top of, as a VLAN's is; "" for none."""
    master: str = ""
    """The bridge or bond that it is a member of; "" for none."""


@dataclass(frozen=True)
class PeerRoute:
    """How packets to a peer leave the host."""

    interface: str
    mtu: int | None
    """The MTU of the route; None if it has none of its own, so that of the interface counts."""


@dataclass(frozen=True)
class BondSample:
    """A bond and all network cards at one time."""

    uptime: float
    """Seconds since the host started."""
    bond: Bond
    links: Mapping[str, LinkCounters]


# A switch, and its port where a member's cable ends.
Cable = tuple[str, str]


def query_bonds() -> Query[tuple[str, ...]]:
    command = Shell(("ls", "-1", _DIRECTORY), hints=(_NO_DRIVER,))
    return Query(command, lambda answer: tuple(answer.split()))


def query_bond(name: str) -> Query[Bond]:
    """Query the bond. LACP's details are missing unless the login is root."""
    return Query(
        Shell(("cat", f"{_DIRECTORY}/{name}"), hints=(_NO_BOND,)), partial(parse_bond, name)
    )


def query_bond_as_root(name: str) -> Query[Bond]:
    command = Shell(("cat", f"{_DIRECTORY}/{name}"), root=True, hints=(_NO_BOND,))
    return Query(command, partial(parse_bond, name))


def query_links() -> Query[Mapping[str, LinkCounters]]:
    return Query(Shell(("ip", "-j", "-s", "link", "show")), parse_links)


def query_route(peer: IPv4Address | IPv6Address) -> Query[PeerRoute]:
    """Query how packets to *peer* leave the host. Raises CommandError if there is no route."""
    return Query(Shell(("ip", "-j", "route", "get", str(peer)), hints=(_NO_ROUTE,)), parse_route)


def query_drivers(cards: Sequence[str]) -> Query[Mapping[str, str]]:
    """Query the driver of each card that has one; virtual cards have none."""
    files = (f"/sys/class/net/{card}/device/uevent" for card in cards)
    command = Shell(("grep", "-sH", "^DRIVER=", "--", *files))
    return Query(command, parse_drivers, statuses=frozenset({0, 1, 2}))


def query_packet_fits(peer: IPv4Address | IPv6Address, mtu: int) -> Query[bool]:
    """Query whether *peer* returns packets of *mtu* bytes unfragmented."""
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
    """Query how many packets the host has reassembled from fragments. version: 4 or 6."""
    file = "/proc/net/snmp" if version == 4 else "/proc/net/snmp6"
    return Query(Shell(("cat", file)), parse_reassembled)


def query_samples(name: str, *, seconds: int) -> Query[tuple[BondSample, BondSample]]:
    """Query two samples, *seconds* apart, with one command."""
    words = (_WATCH, f"{_DIRECTORY}/{name}", str(seconds))
    command = Shell(words, hints=(_NO_BOND,), deadline=seconds + 20)
    return Query(command, partial(parse_samples, name))


def query_switch_lag(name: str) -> Query[tuple[str, str] | None]:
    """Query the switch and its link aggregation, as the inventory sets them for the bond."""
    setting = Setting(f"{name}.switch", "-", pattern=r"-|[a-z0-9-]+ [A-Za-z][A-Za-z-]{0,15}[0-9]+")
    return Query(setting, _parse_switch_lag)


def query_switch_ports(name: str) -> Query[tuple[Cable, ...]]:
    """Query the switch ports that the inventory sets for the bond, one for each member."""
    one = r"[a-z0-9-]+:[A-Za-z][A-Za-z0-9./-]{0,30}"
    setting = Setting(f"{name}.ports", "-", pattern=rf"-|{one}( {one})*")
    return Query(setting, _parse_switch_ports)


def parse_bond(name: str, answer: str) -> Bond:
    head, *parts = re.split(r"^(?=Slave Interface: )", answer, flags=re.MULTILINE)
    if not head.startswith(_FIRST):
        raise ParseError(f"/proc/net/bonding/{name} is not in a known format: {answer[:100]!r}")
    fields = _parse_fields(head)
    if _NO_AGGREGATOR.search(head):
        fields |= {"Aggregator ID": "0", "Number of ports": "0"}
    members = parse_each(parts, _parse_member)
    polled = fields.get("MII Polling Interval (ms)"), fields.get("ARP Polling Interval (ms)")
    return Bond(
        name,
        _FAIL_OVER_MAC.sub("", _require_field(fields, "Bonding Mode")),
        is_up=_require_field(fields, "MII Status") == "up",
        is_monitored=any(interval not in {None, "0"} for interval in polled),
        members=Rows(members, [*members.odd, *_list_stray_lines(answer)]),
        active_member=_parse_interface(fields.get("Currently Active Slave")),
        primary_member=_parse_interface(fields.get("Primary Slave")),
        aggregator=_parse_number(fields, "Aggregator ID"),
        port_count=_parse_number(fields, "Number of ports"),
        partner=fields.get("Partner Mac Address"),
        hash_policy=fields.get("Transmit Hash Policy", "").split(" ")[0],
        lacp_rate=fields.get("LACP rate", ""),
    )


def parse_links(answer: str) -> NamedRows[str, LinkCounters]:
    try:
        listed = json.loads(answer)
    except ValueError:
        listed = None
    links = parse_each(cast("list[Any]", listed) if isinstance(listed, list) else [], _parse_link)
    if not links:  # every host has a loopback
        raise ParseError(f"ip printed network cards in an unknown format: {answer[:100]!r}")
    return NamedRows(((link.name, link) for link in links), links.odd)


def parse_drivers(answer: str) -> NamedRows[str, str]:
    drivers = parse_each(answer.splitlines(), _parse_driver)
    return NamedRows(drivers, drivers.odd)


def _parse_driver(line: str) -> tuple[str, str]:
    found = re.fullmatch(r"/sys/class/net/([^/]+)/device/uevent:DRIVER=(\S+)", line)
    if found is None:
        raise ParseError("it is no driver of a network card")
    return found[1], found[2]


def parse_ping(answer: str) -> bool:
    """Return whether every packet came back. Parses iputils and busybox."""
    counts = re.search(r"^(\d+) packets transmitted, (\d+) (?:packets )?received", answer, re.M)
    if counts is None:
        raise ParseError(f"ping printed {answer[-200:]!r} instead of packet counts")
    return int(counts[1]) > 0 and counts[1] == counts[2]


def parse_reassembled(answer: str) -> int:
    """Parse /proc/net/snmp, which has pairs of lines of names and numbers, or snmp6."""
    found = re.search(r"^Ip6ReasmOKs\s+(\d+)$", answer, re.M)
    if found:
        return int(found[1])
    lines = [line.split()[1:] for line in answer.splitlines() if line.startswith("Ip: ")]
    fields = dict(zip(*lines, strict=False)) if len(lines) == 2 else {}
    if not fields.get("ReasmOKs", "").isdecimal():
        raise ParseError(
            f"the kernel's packet counters are in an unknown format: {answer[:100]!r}"
        )
    return int(fields["ReasmOKs"])


def parse_samples(name: str, answer: str) -> tuple[BondSample, BondSample]:
    parts = re.split(r"^== (\d+(?:\.\d+)?)\n", answer, flags=re.MULTILINE)
    if len(parts) != 5:
        raise ParseError(f"the two samples of {name} are incomplete: {answer[-100:]!r}")
    return _parse_sample(name, parts[0], parts[1]), _parse_sample(name, parts[2], parts[3])


def _parse_sample(name: str, text: str, seconds: str) -> BondSample:
    head, bracket, listed = text.partition("\n[")
    bond, links = parse_bond(name, head), parse_links(bracket + listed)
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
    """Parse `Key: value` lines; LACP data of each end has a key such as `partner …`."""
    fields: dict[str, str] = {}
    side = ""
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if line.startswith("details "):
            side = line.split()[1] + " "
        elif colon:
            # Only indented lines belong to an end.
            fields[(side if line.startswith(" ") else "") + key.strip()] = value.strip()
    return fields


def _require_field(fields: Mapping[str, str], key: str) -> str:
    if key not in fields:
        raise ParseError(f"the bond's file has no {key}: it was cut off")
    return fields[key]


def _parse_number(fields: Mapping[str, str], key: str) -> int | None:
    word = fields.get(key)
    if word == "N/A":
        return None
    if word is not None and not word.isdecimal():
        raise ParseError(f"the bond's {key} is {word!r}, not a number")
    return None if word is None else int(word)


def _list_stray_lines(answer: str) -> Iterator[OddRow]:
    """Yield lines that the driver does not print."""
    for line in filter(str.strip, answer.splitlines()):
        if ":" not in line and not re.match(r"802\.3ad info|bond \S+ has no active agg", line):
            yield make_odd_row(line, "it is no line of a bond")


def _parse_member(part: str) -> BondMember:
    fields = _parse_fields(part)
    speed = re.fullmatch(r"(\d+) Mbps", _require_field(fields, "Speed"))
    churn = (fields.get("Actor Churn State"), fields.get("Partner Churn State"))
    return BondMember(
        _require_field(fields, "Slave Interface"),
        _require_field(fields, "MII Status"),
        int(speed[1]) if speed else None,
        _require_field(fields, "Duplex"),
        int(_require_field(fields, "Link Failure Count")),
        aggregator=_parse_number(fields, "Aggregator ID"),
        partner=fields.get("partner system mac address"),
        state=_parse_number(fields, "actor port state"),
        partner_state=_parse_number(fields, "partner port state"),
        is_churned="churned" in churn,
    )


def _parse_interface(word: str | None) -> str:
    """Return the name of a card; "" for the kernel's `None`."""
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
        is_enabled="UP" in link["flags"],
        parent=str(link.get("link") or ""),
        master=str(link.get("master") or ""),
    )


def parse_route(answer: str) -> PeerRoute:
    try:
        (route,) = json.loads(answer)
        # The kernel has learned an MTU that expires from an error on the path, which is what a
        # test of the path is to find.
        metrics: Any = {} if "expires" in route else route.get("metrics", [{}])[0]
        return PeerRoute(str(route["dev"]), int(metrics["mtu"]) if "mtu" in metrics else None)
    except (ValueError, KeyError, TypeError, LookupError, AttributeError):
        raise ParseError(f"ip printed {answer[:200]!r} instead of a route") from None


def list_interfaces_above(name: str, links: Mapping[str, LinkCounters]) -> Set[str]:
    """Return the interface with those on top of it: VLANs, and bridges with their VLANs."""
    found, waiting = set[str](), [name]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.add(current)
        waiting += [link.name for link in links.values() if link.parent == current]
        waiting += [link.master] if (link := links.get(current)) and link.master else []
    return found


SUDO = (
    SudoRule(
        "/usr/bin/cat", WordPattern(NAME.strip("^$"), prefix=f"{_DIRECTORY}/"), read_only=True
    ),
)
