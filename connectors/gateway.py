"""The addresses that routers stand in for each other with: HSRP and VRRP. No I/O."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import DeviceCommand, Query
from connectors.template import HINTS, Row, rows, said
from connectors.trouble import NotUnderstood

# The template keeps only the last thing that a group tracks, so that is read here.
_HSRP_GROUP = re.compile(r"^(?=\S+ - Group )", re.MULTILINE)
_TRACK = re.compile(
    r"^\s+Track (object|interface) (\S+)(?: \(unknown\)| state (\S+))", re.MULTILINE
)

_LEADS = frozenset({"Active", "Master"})
_FOLLOWS = frozenset({"Standby", "Backup", "Listen"})


@dataclass(frozen=True)
class Track:
    """What lowers a group's priority when it fails. known: whether the device has such a thing."""

    name: str
    up: bool
    known: bool = True


@dataclass(frozen=True)
class Gateway:
    """One router's part in one group.

    state: in the protocol's words, such as Active, Standby, Master, Backup, Init.
    standby: who takes over: an address, `local`, `unknown`, or "" where that is not told.
    tracks, preempts: None where that is not told.
    """

    protocol: str
    interface: str
    group: int
    address: str
    state: str
    priority: int
    standby: str = ""
    tracks: tuple[Track, ...] | None = None
    preempts: bool | None = None

    @property
    def leads(self) -> bool:
        return self.state in _LEADS

    @property
    def works(self) -> bool:
        return self.leads or self.state in _FOLLOWS

    @property
    def same(self) -> tuple[str, int, str]:
        """What is the same on every router of the group."""
        return self.protocol, self.group, self.address

    def __str__(self) -> str:
        return f"{self.interface} group {self.group} ({self.address})"


def gateways() -> Query[tuple[Gateway, ...]]:
    """Return the groups of HSRP on a Cisco, and of VRRP on FRR."""
    command = DeviceCommand(
        ("show standby", "show vrrp json"), platforms=("cisco_ios", "frr"), hints=HINTS
    )
    return Query(command, parse_gateways)


def vrrp_groups() -> Query[tuple[Gateway, ...]]:
    command = DeviceCommand(
        ("show vrrp brief", "show vrrp json"), platforms=("cisco_ios", "frr"), hints=HINTS
    )
    return Query(command, parse_gateways)


def parse_gateways(answer: str) -> tuple[Gateway, ...]:
    """Understand any of the three. A Cisco that takes part in no group says nothing at all."""
    if answer.lstrip().startswith("["):
        return _frr(answer)
    if not answer.strip():
        return ()
    if answer.lstrip().startswith("Interface"):
        only_the_header = len(answer.strip().splitlines()) == 1
        found = () if only_the_header else rows("cisco_ios_show_vrrp_brief", answer)
        return tuple(_cisco_vrrp(row) for row in found)
    told = _HSRP_GROUP.split(answer)[1:]
    found = rows("cisco_ios_show_standby", answer)
    if len(found) != len(told):
        raise NotUnderstood(f"{len(told)} HSRP groups are told and {len(found)} understood")
    return tuple(_hsrp(row, text) for row, text in zip(found, told, strict=True))


def _hsrp(row: Row, text: str) -> Gateway:
    tracked = (
        Track(f"{match[1]} {match[2]}", match[3] == "Up", known=match[3] is not None)
        for match in _TRACK.finditer(text)
    )
    return Gateway(
        "HSRP",
        row.text("INTERFACE"),
        row.number("GROUP"),
        row.text("VIRTUAL_IP"),
        row.text("STATE") or _lacking("state"),
        row.number("PRIORITY"),
        standby=row.text("STANDBY_ROUTER"),
        tracks=tuple(tracked),
        preempts=row.text("PREEMPTION") == "enabled",
    )


def _lacking(what: str) -> str:
    raise NotUnderstood(f"an HSRP group is told without its {what}")


def _cisco_vrrp(row: Row) -> Gateway:
    return Gateway(
        "VRRP",
        row.text("INTERFACE"),
        row.number("GROUP"),
        row.text("VIRTUAL_IP_ADDRESS"),
        row.text("STATE"),
        row.number("PRIORITY"),
        preempts=row.text("PREEMPT") == "Y",
    )


def _frr(answer: str) -> tuple[Gateway, ...]:
    """Read FRR's `show vrrp json`: a list of groups, each with a part for IPv4 and for IPv6."""
    try:
        groups = cast("Sequence[Mapping[str, Any]]", json.loads(answer))
        return tuple(
            Gateway(
                "VRRP",
                str(group["interface"]),
                int(group["vrid"]),
                ", ".join(map(str, group[family]["addresses"])),
                "Shutdown" if group["shutdown"] else str(group[family]["status"]),
                int(group[family]["effectivePriority"]),
                preempts=bool(group["preemptMode"]),
            )
            for group in groups
            for family in ("v4", "v6")
            if group[family]["addresses"]
        )
    except (ValueError, KeyError, TypeError):
        raise NotUnderstood(f"FRR tells its VRRP groups in another way: {said(answer)}") from None
