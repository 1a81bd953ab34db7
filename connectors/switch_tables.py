"""What a switch knows of its neighbours, addresses and errors. No I/O.

Which platform has which table is given by the templates of ntc-templates.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from connectors.command import DeviceCommand, Query
from connectors.device_output import HINTS, Row, parse_rows
from connectors.errors import ParseError

# How a table without a row begins or ends.
_NO_NEIGHBOUR = re.compile(
    r"Total (?:cdp )?entries displayed ?: ?0|^Device ID +Local Intrfce[^\n]*\s*\Z"
    r"|^Port +Neighbor Device ID[^\n]*\n[- ]+\s*\Z|^ *-+ \+[- ]+\s*\Z",
    re.MULTILINE,
)
# Junos prints flags: dynamic or static, and who learned it.
_KINDS = {"DL": "dynamic", "DR": "dynamic", "DLR": "dynamic", "S": "static"}
_NO_ADDRESS = re.compile(r"Total Mac Addresses for this criterion: 0|^[ +-]+\s*\Z", re.MULTILINE)


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


def query_lldp_neighbours() -> Query[tuple[Neighbour, ...]]:
    lines = (*("show lldp neighbors",) * 3, "show lldp info remote-device")
    platforms = ("cisco_ios", "arista_eos", "juniper_junos", "hp_procurve")
    return Query(DeviceCommand(lines, platforms=platforms, hints=HINTS), parse_lldp_neighbours)


def query_cdp_neighbours() -> Query[tuple[Neighbour, ...]]:
    command = DeviceCommand(("show cdp neighbors",), platforms=("cisco_ios",), hints=HINTS)
    return Query(command, parse_cdp_neighbours)


def query_addresses() -> Query[tuple[LearnedAddress, ...]]:
    commands = {
        "cisco_ios": "show mac address-table",
        "arista_eos": "show mac address-table",
        "juniper_junos": "show ethernet-switching table",
        "hp_procurve": "show mac-address",
        "dell_powerconnect": "show bridge address-table",
    }
    command = DeviceCommand(tuple(commands.values()), platforms=tuple(commands), hints=HINTS)
    return Query(command, parse_addresses)


def query_errors() -> Query[tuple[PortErrors, ...]]:
    command = DeviceCommand(
        ("show interfaces", "show interfaces"), platforms=("cisco_ios", "hp_procurve"), hints=HINTS
    )
    return Query(command, parse_errors)


def parse_lldp_neighbours(answer: str) -> tuple[Neighbour, ...]:
    return _parse_neighbours(_LLDP_TABLES, "LLDP", answer)


def parse_cdp_neighbours(answer: str) -> tuple[Neighbour, ...]:
    return _parse_neighbours(_CDP_TABLES, "CDP", answer)


def parse_addresses(answer: str) -> tuple[LearnedAddress, ...]:
    if _NO_ADDRESS.search(answer):
        return ()
    return tuple(
        LearnedAddress(address, vlan, port, _KINDS.get(kind, kind.lower()))
        for address, vlan, port, kind in _parse_cells(_ADDRESS_TABLES, answer)
    )


def _parse_neighbours(
    tables: tuple[_Table, ...], protocol: str, answer: str
) -> tuple[Neighbour, ...]:
    if _NO_NEIGHBOUR.search(answer):
        return ()
    return tuple(
        Neighbour(port, name, far_port, protocol, frozenset(re.findall(r"[A-Za-z]", capabilities)))
        for port, name, far_port, capabilities in _parse_cells(tables, answer)
    )


def _parse_cells(tables: tuple[_Table, ...], answer: str) -> Iterator[tuple[str, ...]]:
    """Yield four cells of each row; "" for a column that the platform does not have."""
    table = next(each for each in tables if each.sign in answer)
    # Some versions print counters before the head of the table.
    start = answer.find("Port ") if table.sign == "Neighbor Device ID" else 0
    for row in parse_rows(table.template, answer[start:]):
        cells = [row.get_joined(column) for column in table.columns]
        yield (*cells, *[""] * (4 - len(cells)))


def parse_errors(answer: str) -> tuple[PortErrors, ...]:
    if "Port Counters" in answer:
        return tuple(
            PortErrors(
                row.get_text("PORT"), _count(row, "ERRORS_RX"), None, _count(row, "DROPS_TX")
            )
            for row in parse_rows("hp_procurve_show_interfaces", answer)
        )
    return tuple(
        PortErrors(
            row.get_text("INTERFACE"),
            row.get_number("INPUT_ERRORS"),
            row.get_number("CRC"),
            row.get_number("OUTPUT_ERRORS"),
        )
        for row in parse_rows("cisco_ios_show_interfaces", answer)
        if row.get_text("INPUT_ERRORS")
    )


def _count(row: Row, column: str) -> int:
    """Return a counter that an HP prints with commas."""
    text = row.get_text(column).replace(",", "")
    if not text.isdecimal():
        raise ParseError(f"the device printed {text!r} as {column.lower()}: not a number")
    return int(text)
