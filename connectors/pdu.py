"""Switched power strips (PDUs): their outlets, by SNMP. No I/O.

Three MIBs are known. Sources of objects and values:

* PowerNet-MIB of APC, table rPDUOutlet (AP79xx): NUT's `drivers/apc-pdu-mib.c`.
* PowerNet-MIB of APC, table rPDU2OutletSwitched (AP84xx, AP86xx, AP89xx): the descriptions of
  rPDU2OutletSwitchedControlCommand and …StatusState in the MIB.
* PDU2-MIB of Raritan, which Server Technology's PRO3X and PRO4X have too: Raritan's "SNMP MIB User
  Guide" and NUT's `drivers/raritan-px2-mib.c`.

None of them was seen on a real device yet.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from connectors.command import Query, Setting, SnmpSet, SnmpWalk
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each

_APC = "1.3.6.1.4.1.318.1.1"
_RARITAN = "1.3.6.1.4.1.13742.6"
Action = Literal["on", "off", "cycle"]


@dataclass(frozen=True)
class OutletTable:
    """The columns of a MIB for outlets, and the values in them."""

    name_column: str
    state_column: str
    command_column: str
    on: int
    """The state of an outlet that is on."""
    off: int
    commands: Mapping[Action, int]


TABLES: Mapping[str, OutletTable] = {
    # rPDU2OutletSwitchedStatusName and …State: off(1), on(2). rPDU2OutletSwitchedControlCommand:
    # immediateOn(1), immediateOff(2), immediateReboot(3).
    "rPDU2 of PowerNet-MIB": OutletTable(
        f"{_APC}.26.9.2.3.1.3",
        f"{_APC}.26.9.2.3.1.5",
        f"{_APC}.26.9.2.4.1.5",
        on=2,
        off=1,
        commands={"on": 1, "off": 2, "cycle": 3},
    ),
    # rPDUOutletStatusOutletName and …OutletState: outletStatusOn(1), outletStatusOff(2).
    # rPDUOutletControlOutletCommand: immediateOn(1), immediateOff(2), immediateReboot(3).
    "rPDU of PowerNet-MIB": OutletTable(
        f"{_APC}.12.3.5.1.1.2",
        f"{_APC}.12.3.5.1.1.4",
        f"{_APC}.12.3.3.1.1.4",
        on=1,
        off=2,
        commands={"on": 1, "off": 2, "cycle": 3},
    ),
    # outletName, outletSwitchingState: on(7), off(8). switchingOperation: off(0), on(1), cycle(2).
    # The index is the number of the unit, 1 unless several are linked, and that of the outlet.
    "PDU2-MIB": OutletTable(
        f"{_RARITAN}.3.5.3.1.3",
        f"{_RARITAN}.4.1.2.1.3",
        f"{_RARITAN}.4.1.2.1.2",
        on=7,
        off=8,
        commands={"on": 1, "off": 0, "cycle": 2},
    ),
}

_VALUE = re.compile(r"\.([0-9.]+) = (?:INTEGER: (-?[0-9]+)|STRING: (\".*\"))", re.ASCII)
_UNIT_OF_ONE = re.compile(r"1\.(?=[0-9]+\Z)")
_LEG = r"[a-z0-9][a-z0-9-]*(/[A-Za-z0-9_.-]+)?"
_BEHIND = rf"([0-9]+(\.[0-9]+)?=(-|{_LEG}(,{_LEG})*)( (?!\Z)|\Z))*"


@dataclass(frozen=True)
class Outlet:
    """One outlet of a power strip."""

    number: str
    """As people write it: `3`; `2.3` for the third of the second of several linked strips."""
    name: str
    """The name that is stored in the strip; "" for none."""
    state: str
    """`on`, `off`, or another state by its number in the MIB."""
    table: str
    """Which of TABLES it is in."""
    index: str
    """Its index there, such as `3` or `1.3`."""


def query_outlets() -> Query[Rows[Outlet]]:
    columns = [(table.state_column, table.name_column) for table in TABLES.values()]
    walk = SnmpWalk(tuple(column for both in columns for column in both))
    return Query(walk, parse_outlets)


def query_behind() -> Query[Mapping[str, tuple[str, ...]]]:
    """Return what the inventory says is behind each outlet: hosts, or parts such as `web1/psu2`.

    The strip's setting `power.outlets` has it: `1=web1/psu1 2=web2,switch3 3=-`.
    """
    return Query(Setting("power.outlets", "", pattern=_BEHIND), parse_behind)


def switch_outlet(outlet: Outlet, action: Action) -> SnmpSet:
    """Turn an outlet on or off, or off and on again after the time that the strip is set to."""
    table = TABLES[outlet.table]
    return SnmpSet((f"{table.command_column}.{outlet.index} i {table.commands[action]}",))


def parse_outlets(output: str) -> Rows[Outlet]:
    listed = parse_each(output.splitlines(), _parse_value)
    values = dict(listed)
    for name, table in TABLES.items():
        begin = f"{table.state_column}."
        found = [oid.removeprefix(begin) for oid in values if oid.startswith(begin)]
        if found:
            indexes = Rows(_sort_indexes(found), listed.odd)
            return indexes.parse(lambda index, name=name: _build_outlet(name, index, values))
    raise ParseError(
        "the device returns no outlets that can be switched, by PowerNet-MIB of APC or PDU2-MIB "
        "of Raritan: it may only measure, or its SNMP user may not read them"
    )


def parse_behind(setting: str) -> Mapping[str, tuple[str, ...]]:
    pairs = [pair.partition("=") for pair in setting.split()]
    return {number: tuple(legs.split(",")) if legs != "-" else () for number, _, legs in pairs}


def _parse_value(line: str) -> tuple[str, int | str]:
    found = _VALUE.fullmatch(line)
    if found is None:
        raise ParseError("it is no value of an outlet")
    return found[1], int(found[2]) if found[2] else str(json.loads(found[3]))


def _build_outlet(name: str, index: str, values: Mapping[str, int | str]) -> Outlet:
    table = TABLES[name]
    state = values[f"{table.state_column}.{index}"]
    return Outlet(
        _UNIT_OF_ONE.sub("", index),
        str(values.get(f"{table.name_column}.{index}", "")),
        {table.on: "on", table.off: "off"}.get(int(state), f"state {state}"),
        name,
        index,
    )


def _sort_indexes(indexes: Iterable[str]) -> list[str]:
    return sorted(indexes, key=lambda index: [int(part) for part in index.split(".")])
