"""What a switch knows of its neighbours, addresses and errors. No I/O.

Which platform has which table is given by the templates of ntc-templates.
"""

import re
from dataclasses import dataclass

from connectors.command import DeviceCommand, Query
from connectors.device_output import (
    HINTS,
    Row,
    format_answer,
    parse_row,
    parse_rows,
    split_odd_lines,
)
from connectors.errors import ParseError
from connectors.rows import Rows, make_odd_row, parse_each

# How a table without a row begins or ends.
_NO_NEIGHBOUR = re.compile(
    r"Total (?:cdp )?entries displayed ?: ?0|^Device ID +Local Intrfce[^\n]*\s*\Z"
    r"|^Port +Neighbor Device ID[^\n]*\n[- ]+\s*\Z|^ *-+ \+[- ]+\s*\Z",
    re.MULTILINE,
)
# Junos prints flags: dynamic or static, and who learned it.
_KINDS = {"DL": "dynamic", "DR": "dynamic", "DLR": "dynamic", "S": "static"}
_NO_ADDRESS = re.compile(r"Total Mac Addresses for this criterion: 0|^[ +-]+\s*\Z", re.MULTILINE)

_TOTAL = re.compile(r"Total (?:cdp )?entries displayed ?: ?(\d+)")
_MAC = r"[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}"
_VLAN_COLUMN = rf"^\W*\w+\s+{_MAC}\s"
_VLAN_FIRST = rf"\W*(\d+|All|N/A)\s+{_MAC}"
# Where a Cisco device begins an interface.
_INTERFACE = re.compile(r"^(?=\S+ is )", re.MULTILINE)


@dataclass(frozen=True)
class Neighbour:
    """A device at the other end of a cable, as it announces itself."""

    port: str
    """The port of this switch."""
    name: str
    far_port: str
    protocol: str
    """LLDP or CDP."""
    capabilities: frozenset[str] = frozenset()
    """Letters of the protocol's legend; empty where the switch does not print them."""

    @property
    def is_switch(self) -> bool:
        """Whether it is a switch or router, or does not say what it is."""
        if self.protocol == "CDP":
            return bool(self.capabilities & {"S", "R"})
        return not self.capabilities & {"T", "W", "S", "C"} or bool(self.capabilities & {"R"})


@dataclass(frozen=True)
class LearnedAddress:
    """A MAC address in a switch's table."""

    address: str
    """As the device prints it."""
    vlan: str
    port: str
    kind: str
    """dynamic, static, or the device's own word; "" where it prints none."""


@dataclass(frozen=True)
class PortErrors:
    """Counters of a port, since the device or a person cleared them."""

    port: str
    received: int
    """Errors of received frames."""
    crc: int | None
    """Those of them with a wrong checksum, None where the device does not count them apart."""
    sent: int
    """Errors of sent frames; on an HP, frames that were dropped."""

    @property
    def total(self) -> int:
        return self.received + self.sent


@dataclass(frozen=True)
class _Table:
    """How the devices of one platform print a table, and which columns its template has."""

    sign: str
    """A text that only this platform prints there."""
    template: str
    columns: tuple[str, ...]


# The first one whose sign is found; the last one has none.
_ADDRESS_TABLES = (
    _Table(
        "MAC flags",
        "juniper_junos_show_ethernet-switching_table",
        ("MAC_ADDRESS", "VLAN_ID", "LOGICAL_INTERFACE", "MAC_FLAG"),
    ),
    _Table(
        "Port Address Table", "hp_procurve_show_mac-address", ("MAC_ADDRESS", "VLAN_ID", "PORT")
    ),
    _Table(
        "Aging time",
        "dell_powerconnect_show_bridge_address_table",
        ("DESTINATION_ADDRESS", "VLAN_ID", "DESTINATION_PORT", "TYPE"),
    ),
    _Table(
        "Last Move",
        "arista_eos_show_mac_address-table",
        ("MAC_ADDRESS", "VLAN_ID", "DESTINATION_PORT", "TYPE"),
    ),
    _Table(
        "",
        "cisco_ios_show_mac-address-table",
        ("DESTINATION_ADDRESS", "VLAN_ID", "DESTINATION_PORT", "TYPE"),
    ),
)
_NAMES = ("LOCAL_INTERFACE", "NEIGHBOR_NAME", "NEIGHBOR_INTERFACE")
_LLDP_TABLES = (
    _Table("LLDP Remote Devices", "hp_procurve_show_lldp_info_remote-device", _NAMES),
    _Table("Parent Interface", "juniper_junos_show_lldp_neighbors", _NAMES),
    _Table("Neighbor Device ID", "arista_eos_show_lldp_neighbors", _NAMES),
    _Table("", "cisco_ios_show_lldp_neighbors", (*_NAMES, "CAPABILITIES")),
)
_CDP_TABLES = (_Table("", "cisco_ios_show_cdp_neighbors", (*_NAMES, "CAPABILITIES")),)


def query_lldp_neighbours() -> Query[Rows[Neighbour]]:
    lines = (*("show lldp neighbors",) * 3, "show lldp info remote-device")
    platforms = ("cisco_ios", "arista_eos", "juniper_junos", "hp_procurve")
    return Query(DeviceCommand(lines, platforms=platforms, hints=HINTS), parse_lldp_neighbours)


def query_cdp_neighbours() -> Query[Rows[Neighbour]]:
    command = DeviceCommand(("show cdp neighbors",), platforms=("cisco_ios",), hints=HINTS)
    return Query(command, parse_cdp_neighbours)


def query_addresses() -> Query[Rows[LearnedAddress]]:
    commands = {
        "cisco_ios": "show mac address-table",
        "arista_eos": "show mac address-table",
        "juniper_junos": "show ethernet-switching table",
        "hp_procurve": "show mac-address",
        "dell_powerconnect": "show bridge address-table",
    }
    command = DeviceCommand(tuple(commands.values()), platforms=tuple(commands), hints=HINTS)
    return Query(command, parse_addresses)


def query_errors() -> Query[Rows[PortErrors]]:
    command = DeviceCommand(
        ("show interfaces", "show interfaces"), platforms=("cisco_ios", "hp_procurve"), hints=HINTS
    )
    return Query(command, parse_errors)


def parse_lldp_neighbours(answer: str) -> Rows[Neighbour]:
    return _parse_neighbours(_LLDP_TABLES, "LLDP", answer)


def parse_cdp_neighbours(answer: str) -> Rows[Neighbour]:
    return _parse_neighbours(_CDP_TABLES, "CDP", answer)


def parse_addresses(answer: str) -> Rows[LearnedAddress]:
    if _NO_ADDRESS.search(answer):
        return Rows()
    # Where the number of a VLAN comes first, the template takes another line for more ports.
    table, odd = split_odd_lines(answer, _VLAN_COLUMN, _VLAN_FIRST)
    found = _parse_cells(_ADDRESS_TABLES, table).parse(_parse_address)
    return Rows(found, [*odd, *found.odd])


def _parse_address(cells: tuple[str, ...]) -> LearnedAddress:
    address, vlan, port, kind = cells
    return LearnedAddress(address, vlan, port, _KINDS.get(kind, kind.lower()))


def _parse_neighbours(tables: tuple[_Table, ...], protocol: str, answer: str) -> Rows[Neighbour]:
    if _NO_NEIGHBOUR.search(answer):
        return Rows()

    def parse_neighbour(cells: tuple[str, ...]) -> Neighbour:
        port, name, far_port, capabilities = cells
        letters = frozenset(re.findall(r"[A-Za-z]", capabilities))
        return Neighbour(port, name, far_port, protocol, letters)

    found = _parse_cells(tables, answer).parse(parse_neighbour)
    total = _TOTAL.search(answer)
    if total is None or found.odd or int(total[1]) <= len(found):
        return found
    return Rows(found, [make_odd_row(total[0], f"{len(found)} of them could be read")])


def _parse_cells(tables: tuple[_Table, ...], answer: str) -> Rows[tuple[str, ...]]:
    """Return four cells of each row; "" for a column that the platform does not have."""
    # The last one has a sign that every output has.
    table = next(each for each in tables if each.sign in answer)
    # Some versions print counters before the head of the table.
    start = answer.find("Port ") if table.sign == "Neighbor Device ID" else 0
    rows = parse_rows(table.template, answer[start:])
    missing = [""] * (4 - len(table.columns))
    return rows.parse(lambda row: (*map(row.get_joined, table.columns), *missing))


def parse_errors(answer: str) -> Rows[PortErrors]:
    if "Port Counters" in answer:
        return parse_rows("hp_procurve_show_interfaces", answer).parse(_parse_hp_errors)
    if not _INTERFACE.search(answer):
        raise ParseError(f"the device printed no interfaces: {format_answer(answer)}")
    return parse_each(_INTERFACE.split(answer), _parse_cisco_errors)


def _parse_hp_errors(row: Row) -> PortErrors:
    return PortErrors(
        row.get_text("PORT"), _count(row, "ERRORS_RX"), None, _count(row, "DROPS_TX")
    )


def _parse_cisco_errors(text: str) -> PortErrors | None:
    if not text.strip():
        return None
    row = parse_row("cisco_ios_show_interfaces", text)
    if "errors" not in text and not row.get_text("INPUT_ERRORS"):
        return None  # an interface without counters
    return PortErrors(
        row.get_text("INTERFACE"),
        row.get_number("INPUT_ERRORS"),
        row.get_number("CRC"),
        row.get_number("OUTPUT_ERRORS"),
    )


def _count(row: Row, column: str) -> int:
    """Return a counter that an HP prints with commas."""
    text = row.get_text(column).replace(",", "")
    if not text.isdecimal():
        raise ParseError(f"{text!r} as {column.lower()} is no number")
    return int(text)
