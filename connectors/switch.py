"""What a switch or router says of its ports, its link aggregations and its VLANs. No I/O."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import DeviceCommand, Query
from connectors.template import HINTS, Row, rows, said
from connectors.trouble import NotUnderstood

# How Cisco marks a member of a port-channel: its own legend, shortened.
_FLAGS = {
    "P": "bundled",
    "bndl": "bundled",
    "I": "stand-alone",
    "s": "suspended",
    "susp": "suspended",
    "H": "hot-standby",
    "D": "down",
    "w": "waiting to be aggregated",
    "u": "unsuitable for bundling",
    "m": "not in use: too few links",
    "M": "not in use: too few links",
    "f": "no aggregator for it",
    "d": "default port",
}
_DELL_CHANNEL = re.compile(r"(ch\d+)((?:\s+\S+){5})\s+(Up|Down|Not Present)\s*")


@dataclass(frozen=True)
class Port:
    """One port. state: up, down, disabled, or the device's own word for what stopped it.

    The rest is as the device writes it, and empty where it does not tell.
    """

    name: str
    state: str
    note: str = ""
    vlan: str = ""
    duplex: str = ""
    speed: str = ""

    @property
    def half_duplex(self) -> bool:
        return self.state == "up" and "half" in self.duplex.lower()


@dataclass(frozen=True)
class Member:
    """A port in a link aggregation. state: `bundled`, or why it carries nothing."""

    port: str
    state: str


@dataclass(frozen=True)
class Lag:
    """A link aggregation: a port-channel. members: None where the device does not name them.

    protocol: LACP, PAgP, or "" for one that is made by hand or not told.
    """

    name: str
    up: bool
    protocol: str
    members: tuple[Member, ...] | None

    @property
    def number(self) -> str:
        return re.sub(r"\D", "", self.name)

    @property
    def bundled(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members or () if member.state == "bundled")

    @property
    def findings(self) -> list[str]:
        """What a person should act on."""
        if not self.up:
            return [f"{self.name} is down"]
        found = [
            f"{member.port} is not bundled into {self.name}: {member.state}"
            for member in self.members or ()
            if member.state not in {"bundled", "hot-standby"}
        ]
        if self.members is not None and not self.bundled:
            found.append(f"{self.name} has no port that is bundled: nothing goes through it")
        if self.members is not None and len(self.bundled) == 1:
            found.append(f"{self.name} has one port only, {self.bundled[0].port}: nothing spare")
        return found


@dataclass(frozen=True)
class Vlan:
    number: int
    name: str
    state: str
    ports: tuple[str, ...]


def ports() -> Query[tuple[Port, ...]]:
    command = DeviceCommand(
        ("show interfaces status", "show interfaces status", "show interface brief json"),
        platforms=("cisco_ios", "dell_powerconnect", "frr"),
        hints=HINTS,
    )
    return Query(command, parse_ports)


def lags() -> Query[tuple[Lag, ...]]:
    command = DeviceCommand(
        ("show etherchannel summary", "show interfaces status"),
        platforms=("cisco_ios", "dell_powerconnect"),
        hints=HINTS,
    )
    return Query(command, parse_lags)


def vlans() -> Query[tuple[Vlan, ...]]:
    command = DeviceCommand(("show vlan",), platforms=("cisco_ios",), hints=HINTS)
    return Query(command, parse_vlans)


def named(name: str, lags: Sequence[Lag]) -> Lag | None:
    """Find a link aggregation: `port-channel1`, `Po1`, `ch1` and `1` are the same one."""
    number = re.sub(r"\D", "", name)
    return next((lag for lag in lags if lag.number == number), None)


def parse_ports(answer: str) -> tuple[Port, ...]:
    if answer.lstrip().startswith("{"):
        return _frr_ports(answer)
    if "Mdix" in answer:
        return tuple(
            _dell_port(row) for row in rows("dell_powerconnect_show_interfaces_status", answer)
        )
    return tuple(_cisco_port(row) for row in rows("cisco_ios_show_interfaces_status", answer))


def parse_lags(answer: str) -> tuple[Lag, ...]:
    """Return every link aggregation; a device that has none says so in its own words."""
    if "Mdix" in answer:
        return _dell_lags(answer)
    in_use = re.search(r"^Number of channel-groups in use:\s*(\d+)", answer, re.MULTILINE)
    if in_use is None:
        raise NotUnderstood(f"the device does not tell its port-channels: {said(answer)}")
    if in_use[1] == "0":
        return ()
    found = tuple(_cisco_lag(row) for row in rows("cisco_ios_show_etherchannel_summary", answer))
    if len(found) != int(in_use[1]):
        raise NotUnderstood(
            f"the device counts {in_use[1]} port-channels and lists {len(found)} that are "
            "understood"
        )
    return found


def parse_vlans(answer: str) -> tuple[Vlan, ...]:
    return tuple(
        Vlan(
            row.number("VLAN_ID"),
            row.text("VLAN_NAME"),
            row.text("STATUS"),
            row.texts("INTERFACES"),
        )
        for row in rows("cisco_ios_show_vlan", answer)
    )


def _cisco_port(row: Row) -> Port:
    states = {"connected": "up", "notconnect": "down"}
    state = row.text("STATUS")
    return Port(
        row.text("PORT"),
        states.get(state, state),
        note=row.text("NAME").strip(),
        vlan=row.text("VLAN_ID"),
        duplex=row.text("DUPLEX"),
        speed=row.text("SPEED"),
    )


def _dell_port(row: Row) -> Port:
    duplex, speed = (row.text(column).strip("-") for column in ("DUPLEX", "SPEED"))
    return Port(row.text("PORT"), row.text("LINKSTATE").lower(), duplex=duplex, speed=speed)


def _frr_ports(answer: str) -> tuple[Port, ...]:
    """Read FRR's `show interface brief json`: its notion of up is not always the cable's."""
    try:
        listed = cast("Mapping[str, Mapping[str, Any]]", json.loads(answer))
        return tuple(
            Port(name, str(port["status"]), note=", ".join(map(str, port["addresses"])))
            for name, port in listed.items()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotUnderstood(f"FRR lists its ports in another way: {said(answer)}") from None


def _cisco_lag(row: Row) -> Lag:
    names, flags = row.texts("MEMBER_INTERFACE"), row.texts("MEMBER_INTERFACE_STATUS")
    members = (
        Member(name, _FLAGS.get(flag.strip(), flag.strip()))
        for name, flag in zip(names, flags, strict=True)
    )
    protocol = row.text("BUNDLE_PROTOCOL").strip("-")
    return Lag(row.text("BUNDLE_NAME"), "U" in row.text("BUNDLE_STATUS"), protocol, tuple(members))


def _dell_lags(answer: str) -> tuple[Lag, ...]:
    _, found, table = answer.partition("\nCh ")
    lines = [line for line in table.splitlines()[1:] if line.strip(" -")]
    matches = [_DELL_CHANNEL.fullmatch(line) for line in lines]
    if not found or not lines or None in matches:
        raise NotUnderstood(f"the device does not tell its channels: {said(answer[-300:])}")
    present = [match for match in matches if match and match[3] != "Not Present"]
    return tuple(Lag(match[1], match[3] == "Up", "", None) for match in present)
