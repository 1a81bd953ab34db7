"""Redundant gateway addresses of routers: HSRP and VRRP. No I/O.

Formats: the templates of ntc-templates for Cisco; vrrp_build_json in FRR's vrrpd/vrrp_vty.c, which
has the fields that are read here since FRR 7.2.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import DeviceCommand, Query
from connectors.device_output import HINTS, Row, format_answer, parse_row, parse_rows
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each, split_blocks

# The template keeps only the last object that a group tracks, so all are parsed here.
_HSRP_GROUP = re.compile(r"^\S+ - Group ", re.MULTILINE)
_TRACK = re.compile(
    r"^\s+Track (object|interface) (\S+)(?: \(unknown\)| state (\S+))", re.MULTILINE
)

_LEADS = frozenset({"Active", "Master"})
_FOLLOWS = frozenset({"Standby", "Backup", "Listen"})


@dataclass(frozen=True)
class TrackedObject:
    """An object or interface that lowers a group's priority when it is down."""

    name: str
    is_up: bool
    is_known: bool = True
    """Whether the device has such an object."""


@dataclass(frozen=True)
class Gateway:
    """One router's membership in one group."""

    protocol: str
    """HSRP or VRRP."""
    interface: str
    group: int
    address: str
    """The shared address."""
    state: str
    """The protocol's state, such as Active, Standby, Master, Backup, Init."""
    priority: int
    standby_router: str = ""
    """The router that takes over: an address, `local`, `unknown`, or "" if it is not shown."""
    tracked_objects: tuple[TrackedObject, ...] | None = None
    """None if the device does not show them."""
    is_preempting: bool | None = None
    """None if the device does not show it."""

    @property
    def is_active(self) -> bool:
        return self.state in _LEADS

    @property
    def is_working(self) -> bool:
        return self.is_active or self.state in _FOLLOWS

    @property
    def group_key(self) -> tuple[str, int, str]:
        """What identifies the group on all its routers."""
        return self.protocol, self.group, self.address

    def __str__(self) -> str:
        return f"{self.interface} group {self.group} ({self.address})"


def query_gateways() -> Query[Rows[Gateway]]:
    """Query the HSRP groups of a Cisco device, or the VRRP groups of FRR."""
    command = DeviceCommand(
        ("show standby", "show vrrp json"), platforms=("cisco_ios", "frr"), hints=HINTS
    )
    return Query(command, parse_gateways)


def query_vrrp_groups() -> Query[Rows[Gateway]]:
    command = DeviceCommand(
        ("show vrrp brief", "show vrrp json"), platforms=("cisco_ios", "frr"), hints=HINTS
    )
    return Query(command, parse_gateways)


def parse_gateways(answer: str) -> Rows[Gateway]:
    """Parse any of the three formats. A Cisco device without groups prints nothing."""
    if answer.lstrip().startswith("["):
        return _parse_frr(answer)
    if not answer.strip():
        return Rows()
    if answer.lstrip().startswith("Interface"):
        if len(answer.strip().splitlines()) == 1:  # the heading
            return Rows()
        return parse_rows("cisco_ios_show_vrrp_brief", answer).parse(_parse_cisco_vrrp)
    if not _HSRP_GROUP.search(answer):
        raise ParseError(f"the device printed no HSRP groups: {format_answer(answer)}")
    return parse_each(split_blocks(answer.splitlines(), inner=r"\s|$"), _parse_hsrp)


def _parse_hsrp(text: str) -> Gateway:
    row = parse_row("cisco_ios_show_standby", text)
    tracked = (
        TrackedObject(f"{match[1]} {match[2]}", match[3] == "Up", is_known=match[3] is not None)
        for match in _TRACK.finditer(text)
    )
    return Gateway(
        "HSRP",
        row.get_text("INTERFACE"),
        row.get_number("GROUP"),
        row.get_text("VIRTUAL_IP"),
        row.get_text("STATE") or _raise_missing("state"),
        row.get_number("PRIORITY"),
        standby_router=row.get_text("STANDBY_ROUTER"),
        tracked_objects=tuple(tracked),
        is_preempting=row.get_text("PREEMPTION") == "enabled",
    )


def _raise_missing(what: str) -> str:
    raise ParseError(f"it has no {what}")


def _parse_cisco_vrrp(row: Row) -> Gateway:
    return Gateway(
        "VRRP",
        row.get_text("INTERFACE"),
        row.get_number("GROUP"),
        row.get_text("VIRTUAL_IP_ADDRESS"),
        row.get_text("STATE"),
        row.get_number("PRIORITY"),
        is_preempting=row.get_text("PREEMPT") == "Y",
    )


def _parse_frr(answer: str) -> Rows[Gateway]:
    """Parse FRR's `show vrrp json`: a list of groups, each with a part for IPv4 and for IPv6."""
    try:
        groups = json.loads(answer)
    except ValueError:
        groups = None
    if not isinstance(groups, list):
        raise ParseError(f"FRR printed VRRP groups in an unknown format: {format_answer(answer)}")
    parts = [(group, family) for group in cast("list[Any]", groups) for family in ("v4", "v6")]
    return parse_each(parts, lambda part: _parse_frr_group(*part))


def _parse_frr_group(group: Any, family: str) -> Gateway | None:
    part = group[family]
    if not part["addresses"]:
        return None
    return Gateway(
        "VRRP",
        str(group["interface"]),
        int(group["vrid"]),
        ", ".join(map(str, part["addresses"])),
        "Shutdown" if group["shutdown"] else str(part["status"]),
        int(part["effectivePriority"]),
        is_preempting=bool(group["preemptMode"]),
    )
