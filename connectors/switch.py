"""Ports, link aggregations and VLANs of switches and routers. No I/O.

Formats: the templates of ntc-templates; ifs_dump_brief_vty_json in FRR's zebra/interface.c, since
FRR 8.1.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from connectors.command import DeviceCommand, Query, QueryRunner
from connectors.device_output import HINTS, Row, format_answer, parse_rows, split_odd_lines
from connectors.errors import CommandError, ParseError
from connectors.rows import OddRow, Rows, make_odd_row, parse_each

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
_ERR_DISABLED = "err-disabled"
# A row of the table of stopped ports; a column with VLANs may follow the reason.
_STOPPED = re.compile(r"^(\S+)\s.*\berr-?disabled +(\S+(?: \S+)*)", re.MULTILINE)
_PORT = re.compile(r"([a-z-]+) ?(\d+(?:[/.:]\d+)*)")
_DELL_CHANNEL = re.compile(r"(ch\d+)((?:\s+\S+){5})\s+(Up|Down|Not Present)\s*")

NO_PORTS = (
    "the device lists no port: check the rights of its login, and its platform in the inventory"
)


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
    fault: str = ""
    """Why the device has stopped it, such as `err-disabled (bpduguard)`; "" if it has not, or in
    another way."""

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
    ports: tuple[str, ...] | None
    """None where the device does not list them."""


def query_ports() -> Query[Rows[SwitchPort]]:
    commands = {
        "cisco_ios": "show interfaces status",
        "dell_powerconnect": "show interfaces status",
        "arista_eos": "show interfaces status",
        "hp_procurve": "show interfaces brief",
        "juniper_junos": "show interfaces",
        "frr": "show interface brief json",
    }
    return Query(_make_command(commands), parse_ports)


def read_ports(run_query: QueryRunner, host: str) -> Rows[SwitchPort]:
    """Read all ports, with the faults of those that are err-disabled."""
    ports = run_query(host, query_ports())
    if not any(port.state == _ERR_DISABLED for port in ports):
        return ports
    try:
        reasons = run_query(host, query_stop_reasons())
    except CommandError:  # an old version lacks the command
        reasons = dict[str, str]()
    return ports.parse(
        lambda port: (
            replace(port, fault=f"{_ERR_DISABLED} ({reasons.get(port.name, 'reason not shown')})")
            if port.state == _ERR_DISABLED
            else port
        )
    )


def query_stop_reasons() -> Query[Mapping[str, str]]:
    """Query why ports are err-disabled, by port: `bpduguard`, `link-flap`."""
    commands = {
        "cisco_ios": "show interfaces status err-disabled",
        "arista_eos": "show interfaces status errdisabled",
    }
    return Query(_make_command(commands), lambda answer: dict(_STOPPED.findall(answer)))


def query_lags() -> Query[Rows[Lag]]:
    commands = {
        "cisco_ios": "show etherchannel summary",
        "dell_powerconnect": "show interfaces status",
        "arista_eos": "show port-channel summary",
        "juniper_junos": "show lacp interfaces",
    }
    return Query(_make_command(commands), parse_lags)


def query_vlans() -> Query[Rows[Vlan]]:
    commands = {
        "cisco_ios": "show vlan",
        "dell_powerconnect": "show vlan",
        "arista_eos": "show vlan",
        "hp_procurve": "show vlans",
        "juniper_junos": "show vlans",
    }
    return Query(_make_command(commands), parse_vlans)


def _make_command(commands: Mapping[str, str]) -> DeviceCommand:
    return DeviceCommand(tuple(commands.values()), platforms=tuple(commands), hints=HINTS)


def is_same_port(one: str, other: str) -> bool:
    """Return whether two names are of one port: Gi1/0/3, Gig 1/0/3, gigabitethernet1/0/3."""
    return shorten_port(one) == shorten_port(other)


def shorten_port(name: str) -> str:
    """Return the short name of a port, as switches print it: Gi1/0/3."""
    parts = _PORT.fullmatch(name.lower())
    if parts is None or len(parts[1]) == 1:
        return name.lower()
    return parts[1][:2].capitalize() + parts[2]


def find_lag(name: str, lags: Sequence[Lag]) -> Lag | None:
    """Return the link aggregation: `port-channel1`, `Po1`, `ch1` and `1` are the same one."""
    number = re.sub(r"\D", "", name)
    return next((lag for lag in lags if lag.number == number), None)


def parse_ports(answer: str) -> Rows[SwitchPort]:
    if answer.lstrip().startswith("{"):
        return _parse_frr_ports(answer)
    signs = (table for table in _PORT_TABLES if re.search(table[0], answer, re.MULTILINE))
    _, template, parse = next(signs)  # the last one has a sign that every output has
    # The template of Junos does not know this one state, in two words.
    rows = parse_rows(template, answer.replace("Administratively down", "Disabled"))
    return rows.parse(lambda row: port if (port := parse(row)).state else None)


def parse_lags(answer: str) -> Rows[Lag]:
    """Return all link aggregations. A device without any prints so."""
    if "Mdix" in answer:
        return _parse_dell_lags(answer)
    if answer.lstrip().startswith("Aggregated interface:"):
        return parse_rows("juniper_junos_show_lacp_interfaces", answer).parse(_parse_junos_lag)
    if re.search(r"^Number of channels in use:", answer, re.MULTILINE):
        return _parse_arista_lags(answer)
    in_use = re.search(r"^Number of channel-groups in use:\s*(\d+)", answer, re.MULTILINE)
    if in_use is None:
        raise ParseError(f"the device printed no port-channels: {format_answer(answer)}")
    if in_use[1] == "0":
        return Rows()
    table, odd = split_odd_lines(answer, r"\bPo\d+\(", r"\s*\d+\s+Po\d")
    lags = parse_rows("cisco_ios_show_etherchannel_summary", table).parse(_parse_cisco_lag)
    found = Rows(lags, [*odd, *lags.odd])
    if found.odd or len(found) == int(in_use[1]):
        return found
    return Rows(found, [make_odd_row(in_use[0], f"{len(found)} of them could be read")])


def parse_vlans(answer: str) -> Rows[Vlan]:
    if "Authorization" in answer:
        return _parse_dell_vlans(answer)
    if "Routing instance" in answer:
        return parse_rows("juniper_junos_show_vlans", answer).parse(_parse_junos_vlan)
    if "802.1Q VLAN ID" in answer:
        rows = parse_rows("hp_procurve_show_vlans", answer)
        return rows.parse(lambda row: _make_vlan(row, "VLAN_ID", "active", None))
    is_arista = re.search(r"^VLAN +Name[^\n]*\n-{5} -", answer, re.MULTILINE)
    rows = parse_rows("arista_eos_show_vlan" if is_arista else "cisco_ios_show_vlan", answer)
    vlans = rows.parse(
        lambda row: _make_vlan(row, "VLAN_ID", row.get_text("STATUS"), row.get_texts("INTERFACES"))
    )
    return Rows(vlans, [*vlans.odd, *_list_lost_vlans(answer, {vlan.number for vlan in vlans})])


def _list_lost_vlans(answer: str, known: set[int]) -> Iterator[OddRow]:
    """Yield rows of the first table that are none: the template takes them for its other table."""
    for line in re.split(r"(?m)^VLAN +Type ", answer)[0].splitlines():
        number = re.match(r"(\d+)\b", line)
        if number and int(number[1]) not in known:
            yield make_odd_row(line, "it is no VLAN")


def _parse_junos_vlan(row: Row) -> Vlan:
    ports = tuple(each.rstrip("*") for each in row.get_texts("INTERFACES"))
    return _make_vlan(row, "TAG", "active", ports)


def _make_vlan(row: Row, number: str, state: str, ports: tuple[str, ...] | None) -> Vlan:
    return Vlan(row.get_number(number), row.get_text("VLAN_NAME"), state, ports)


def _parse_dell_vlans(answer: str) -> Rows[Vlan]:
    """Parse a table in columns. Names and ports that are too long go on in the next line."""
    lines = answer.splitlines()
    (rule, *_) = [n for n, line in enumerate(lines) if re.match(r"-+ -+ -+ ", line)] or [None]
    if rule is None:
        raise ParseError(f"the device printed no VLANs: {format_answer(answer)}")
    spans = [match.span() for match in re.finditer("-+", lines[rule])][:3]
    rows: list[list[str]] = []
    for line in lines[rule + 1 :]:
        number, name, ports = (line[begin:end].strip() for begin, end in spans)
        if number:
            rows.append([number, name, ports])
        elif rows:
            rows[-1] = [rows[-1][0], rows[-1][1] + name, rows[-1][2] + ports]
    if not rows:
        raise ParseError(f"the device printed no VLANs: {format_answer(answer)}")
    return parse_each(rows, lambda row: _parse_dell_vlan(*row))


def _parse_dell_vlan(number: str, name: str, ports: str) -> Vlan:
    if not number.isdecimal():
        raise ParseError(f"{number!r} is no VLAN")
    return Vlan(int(number), name, "active", tuple(re.findall(r"[^,(]+(?:\([^)]*\))?", ports)))


def _parse_cisco_port(row: Row) -> SwitchPort:
    states = {"connected": "up", "notconnect": "down", "errdisabled": _ERR_DISABLED}
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


def _parse_hp_port(row: Row) -> SwitchPort:
    mode = re.fullmatch(r"(\d+)([FH])Dx", row.get_text("MODE"))
    return SwitchPort(
        row.get_text("PORT"),
        "disabled" if row.get_text("ENABLED") == "No" else row.get_text("STATUS").lower(),
        note=row.get_text("TYPE"),
        duplex={"F": "full", "H": "half"}[mode[2]] if mode else "",
        speed=mode[1] if mode else "",
    )


def _parse_junos_port(row: Row) -> SwitchPort:
    # A logical interface of a port has no administrative state.
    state = {"": "", "Disabled": "disabled"}.get(row.get_text("ADMIN_STATE"))
    return SwitchPort(
        row.get_text("INTERFACE"),
        row.get_text("LINK_STATUS").lower() if state is None else state,
        note=row.get_text("DESCRIPTION"),
    )


# A sign of the table of ports, its template, and what parses one row.
_PORT_TABLES: tuple[tuple[str, str, Callable[[Row], SwitchPort]], ...] = (
    (r"Mdix", "dell_powerconnect_show_interfaces_status", _parse_dell_port),
    (r"\| Intrusion", "hp_procurve_show_interfaces_brief", _parse_hp_port),
    (r"^(Et|Ma)\d\S* ", "arista_eos_show_interfaces_status", _parse_cisco_port),
    (r"^Physical interface:", "juniper_junos_show_interfaces", _parse_junos_port),
    (r"", "cisco_ios_show_interfaces_status", _parse_cisco_port),
)


def _parse_frr_ports(answer: str) -> Rows[SwitchPort]:
    """Parse FRR's `show interface brief json`; its `up` does not always mean a cable."""
    try:
        listed = json.loads(answer)
    except ValueError:
        listed = None
    if not isinstance(listed, dict):
        raise ParseError(f"FRR printed ports in an unknown format: {format_answer(answer)}")
    return parse_each(cast("dict[str, Any]", listed).items(), lambda each: _parse_frr_port(*each))


def _parse_frr_port(name: str, port: Any) -> SwitchPort:
    return SwitchPort(name, str(port["status"]), note=", ".join(map(str, port["addresses"])))


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


def _parse_dell_lags(answer: str) -> Rows[Lag]:
    _, found, table = answer.partition("\nCh ")
    lines = [line for line in table.splitlines()[1:] if line.strip(" -")]
    if not found or not lines:
        raise ParseError(f"the device printed no channels: {format_answer(answer[-300:])}")
    return parse_each(lines, _parse_dell_lag)


def _parse_dell_lag(line: str) -> Lag | None:
    match = _DELL_CHANNEL.fullmatch(line)
    if match is None:
        raise ParseError("it is no channel")
    return Lag(match[1], match[3] == "Up", "", None) if match[3] != "Not Present" else None


def _parse_arista_lags(answer: str) -> Rows[Lag]:
    """Parse a table that lists channels without a link too, and counts only those in use."""
    if re.search(r"^ *-+ -+ -+\s*\Z", answer, re.MULTILINE):
        return Rows()
    return parse_rows("arista_eos_show_port-channel_summary", answer).parse(_parse_arista_lag)


def _parse_arista_lag(row: Row) -> Lag:
    names, flags = row.get_texts("MEMBER_INTERFACE"), row.get_texts("MEMBER_INTERFACE_STATUS")
    members = tuple(
        LagMember(name, _FLAGS.get(each[:1], each))
        for name, each in zip(names, flags, strict=True)
    )
    is_up = row.get_text("BUNDLE_STATUS") == "U"
    return Lag(row.get_text("BUNDLE_NAME"), is_up, row.get_text("BUNDLE_PROTOCOL"), members)


def _parse_junos_lag(row: Row) -> Lag:
    members = tuple(
        LagMember(name, "bundled" if state == "Collecting distributing" else state.lower())
        for name, state in zip(
            row.get_texts("MEMBER_INTERFACE"), row.get_texts("MUX_STATE"), strict=True
        )
    )
    is_up = any(member.state == "bundled" for member in members)
    return Lag(row.get_text("BUNDLE_NAME"), is_up, "LACP", members)
