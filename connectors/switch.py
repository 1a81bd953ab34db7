"""Ports, link aggregations and VLANs of switches and routers. No I/O."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import DeviceCommand, Query
from connectors.device_output import HINTS, Row, format_answer, parse_rows
from connectors.errors import ParseError

# Cisco's flags of a member of a port-channel, by its own legend.
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
class SwitchPort:
    """One port. Fields other than `state` are as the device prints them, or empty."""

    name: str
    state: str
    """up, down, disabled, or the device's own word for what stopped it."""
    note: str = ""
    vlan: str = ""
    duplex: str = ""
    speed: str = ""

    @property
    def is_half_duplex(self) -> bool:
        return self.state == "up" and "half" in self.duplex.lower()


@dataclass(frozen=True)
class LagMember:
    """A port in a link aggregation."""

    port: str
    state: str
    """`bundled`, or why it carries no traffic."""


@dataclass(frozen=True)
class Lag:
    """A link aggregation (port-channel)."""

    name: str
    is_up: bool
    protocol: str
    """LACP, PAgP, or "" for a static or unknown one."""
    members: tuple[LagMember, ...] | None
    """None where the device does not list them."""

    @property
    def number(self) -> str:
        return re.sub(r"\D", "", self.name)

    @property
    def bundled_members(self) -> tuple[LagMember, ...]:
        return tuple(member for member in self.members or () if member.state == "bundled")

    @property
    def findings(self) -> list[str]:
        """Problems that a person should act on, one sentence each."""
        if not self.is_up:
            return [f"{self.name} is down"]
        found = [
            f"{member.port} is not bundled into {self.name}: {member.state}"
            for member in self.members or ()
            if member.state not in {"bundled", "hot-standby"}
        ]
        if self.members is not None and not self.bundled_members:
            found.append(f"{self.name} has no bundled port: it carries no traffic")
        if self.members is not None and len(self.bundled_members) == 1:
            found.append(
                f"{self.name} has only one bundled port, {self.bundled_members[0].port}: "
                "no redundancy"
            )
        return found


@dataclass(frozen=True)
class Vlan:
    number: int
    name: str
    state: str
    ports: tuple[str, ...]


def query_ports() -> Query[tuple[SwitchPort, ...]]:
    command = DeviceCommand(
        ("show interfaces status", "show interfaces status", "show interface brief json"),
        platforms=("cisco_ios", "dell_powerconnect", "frr"),
        hints=HINTS,
    )
    return Query(command, parse_ports)


def query_lags() -> Query[tuple[Lag, ...]]:
    command = DeviceCommand(
        ("show etherchannel summary", "show interfaces status"),
        platforms=("cisco_ios", "dell_powerconnect"),
        hints=HINTS,
    )
    return Query(command, parse_lags)


def query_vlans() -> Query[tuple[Vlan, ...]]:
    command = DeviceCommand(("show vlan",), platforms=("cisco_ios",), hints=HINTS)
    return Query(command, parse_vlans)


def find_lag(name: str, lags: Sequence[Lag]) -> Lag | None:
    """Return the link aggregation: `port-channel1`, `Po1`, `ch1` and `1` are the same one."""
    number = re.sub(r"\D", "", name)
    return next((lag for lag in lags if lag.number == number), None)


def parse_ports(answer: str) -> tuple[SwitchPort, ...]:
    if answer.lstrip().startswith("{"):
        return _parse_frr_ports(answer)
    if "Mdix" in answer:
        return tuple(
            _parse_dell_port(row)
            for row in parse_rows("dell_powerconnect_show_interfaces_status", answer)
        )
    return tuple(
        _parse_cisco_port(row) for row in parse_rows("cisco_ios_show_interfaces_status", answer)
    )


def parse_lags(answer: str) -> tuple[Lag, ...]:
    """Return all link aggregations. A device without any prints so."""
    if "Mdix" in answer:
        return _parse_dell_lags(answer)
    in_use = re.search(r"^Number of channel-groups in use:\s*(\d+)", answer, re.MULTILINE)
    if in_use is None:
        raise ParseError(f"the device printed no port-channels: {format_answer(answer)}")
    if in_use[1] == "0":
        return ()
    found = tuple(
        _parse_cisco_lag(row) for row in parse_rows("cisco_ios_show_etherchannel_summary", answer)
    )
    if len(found) != int(in_use[1]):
        raise ParseError(
            f"the device counts {in_use[1]} port-channels, and {len(found)} could be parsed"
        )
    return found


def parse_vlans(answer: str) -> tuple[Vlan, ...]:
    return tuple(
        Vlan(
            row.get_number("VLAN_ID"),
            row.get_text("VLAN_NAME"),
            row.get_text("STATUS"),
            row.get_texts("INTERFACES"),
        )
        for row in parse_rows("cisco_ios_show_vlan", answer)
    )


def _parse_cisco_port(row: Row) -> SwitchPort:
    states = {"connected": "up", "notconnect": "down"}
    state = row.get_text("STATUS")
    return SwitchPort(
        row.get_text("PORT"),
        states.get(state, state),
        note=row.get_text("NAME").strip(),
        vlan=row.get_text("VLAN_ID"),
        duplex=row.get_text("DUPLEX"),
        speed=row.get_text("SPEED"),
    )


def _parse_dell_port(row: Row) -> SwitchPort:
    duplex, speed = (row.get_text(column).strip("-") for column in ("DUPLEX", "SPEED"))
    return SwitchPort(
        row.get_text("PORT"), row.get_text("LINKSTATE").lower(), duplex=duplex, speed=speed
    )


def _parse_frr_ports(answer: str) -> tuple[SwitchPort, ...]:
    """Parse FRR's `show interface brief json`; its `up` does not always mean a cable."""
    try:
        listed = cast("Mapping[str, Mapping[str, Any]]", json.loads(answer))
        return tuple(
            SwitchPort(name, str(port["status"]), note=", ".join(map(str, port["addresses"])))
            for name, port in listed.items()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ParseError(
            f"FRR printed ports in an unknown format: {format_answer(answer)}"
        ) from None


def _parse_cisco_lag(row: Row) -> Lag:
    names, flags = row.get_texts("MEMBER_INTERFACE"), row.get_texts("MEMBER_INTERFACE_STATUS")
    members = (
        LagMember(name, _FLAGS.get(flag.strip(), flag.strip()))
        for name, flag in zip(names, flags, strict=True)
    )
    protocol = row.get_text("BUNDLE_PROTOCOL").strip("-")
    return Lag(
        row.get_text("BUNDLE_NAME"), "U" in row.get_text("BUNDLE_STATUS"), protocol, tuple(members)
    )


def _parse_dell_lags(answer: str) -> tuple[Lag, ...]:
    _, found, table = answer.partition("\nCh ")
    lines = [line for line in table.splitlines()[1:] if line.strip(" -")]
    matches = [_DELL_CHANNEL.fullmatch(line) for line in lines]
    if not found or not lines or None in matches:
        raise ParseError(f"the device printed no channels: {format_answer(answer[-300:])}")
    present = [match for match in matches if match and match[3] != "Not Present"]
    return tuple(Lag(match[1], match[3] == "Up", "", None) for match in present)
