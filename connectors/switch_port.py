"""The configuration of one port of a switch, and the lines that change it. No I/O.

Cisco IOS reverts a configuration by its own timer, where `archive` has a path: Cisco's
“Configuration Rollback Confirmed Change”. Dell PowerConnect has nothing like it; the formats of a
Dell are those of other switches with the same software (Allied Telesis AT-8000S and AT-S95), and
were not seen on a Dell.
"""

import re
from dataclasses import dataclass

from connectors.command import DeviceCommand, Query, Setting, SwitchLines, enter_with_timer
from connectors.device_output import HINTS, format_answer
from connectors.errors import ParseError

MAX_VLAN = 4094
# The name of a port: Gi1/0/3, GigabitEthernet1/0/3, g3, 1/g3.
NAME = r"^([0-9]/)?[A-Za-z][A-Za-z-]{0,23}[0-9]{1,3}([/.:][0-9]{1,3}){0,3}$"
# Long enough for a device that answers slowly, and for a person to see what happens.
REVERT_MINUTES = 5

_PLATFORMS = ("cisco_ios", "dell_powerconnect")
_CHANNEL = re.compile(r"channel-group (\d+)")
_VLAN = re.compile(r"switchport access vlan (\d+)")


@dataclass(frozen=True)
class PortSettings:
    """The configuration of one port."""

    interface: str
    """As configuration names it: GigabitEthernet1/0/3, or ethernet g3."""
    is_enabled: bool
    vlan: int
    """The VLAN of an access port."""
    vlan_line: str
    """The line that sets the VLAN as it is."""
    obstacle: str = ""
    """Why it is no plain access port, as a predicate: `is a trunk`; "" if it is one."""

    @property
    def can_revert(self) -> bool:
        """Whether switches of this kind can revert a change by themselves."""
        return not self.interface.startswith("ethernet ")


def query_settings(port: str) -> Query[PortSettings]:
    """Query the configuration of a port. A Dell does not show there whether it is enabled."""
    lines = (
        f"show running-config interface {port}",
        f"show interfaces switchport ethernet {port}",
    )
    return Query(DeviceCommand(lines, platforms=_PLATFORMS, hints=HINTS), parse_settings)


def query_is_enabled(port: str) -> Query[bool]:
    """Query whether a Dell's port is enabled."""
    line = f"show interfaces configuration ethernet {port}"
    command = DeviceCommand((line,), platforms=("dell_powerconnect",), hints=HINTS)
    return Query(command, lambda answer: parse_is_enabled(port, answer))


def query_archive() -> Query[bool]:
    """Query whether a Cisco has a configuration archive, which its timer needs."""
    command = DeviceCommand(("show archive",), platforms=("cisco_ios",), hints=HINTS)
    return Query(command, parse_archive)


def query_uplinks() -> Query[tuple[str, ...]]:
    """Query the ports that the inventory sets as never to be changed."""
    name = NAME.strip("^$")
    setting = Setting("switch.uplinks", "-", pattern=rf"-|{name}( {name})*")
    return Query(setting, lambda answer: tuple(answer.split()) if answer != "-" else ())


def make_lines(settings: PortSettings, *lines: str, with_timer: bool) -> SwitchLines:
    """Return the lines that change a port. with_timer: the switch reverts them by itself."""
    entered = (f"interface {settings.interface}", *lines)
    return enter_with_timer(REVERT_MINUTES, *entered) if with_timer else SwitchLines(entered)


def parse_settings(answer: str) -> PortSettings:
    if "VLAN Membership mode" in answer:
        return _parse_dell_settings(answer)
    name = re.search(r"^interface (\S+)[ \r]*$", answer, re.MULTILINE)
    if name is None:
        raise ParseError(f"the device printed no configuration: {format_answer(answer)}")
    lines = [line.strip() for line in answer[name.end() :].splitlines() if line.startswith(" ")]
    vlan = next((match for line in lines if (match := _VLAN.fullmatch(line))), None)
    return PortSettings(
        name[1],
        "shutdown" not in lines,
        int(vlan[1]) if vlan else 1,
        vlan[0] if vlan else "no switchport access vlan",
        _find_obstacle(lines),
    )


def _find_obstacle(lines: list[str]) -> str:
    for line in lines:
        if channel := _CHANNEL.match(line):
            return f"is a member of port-channel {channel[1]}"
        if line == "switchport mode trunk":
            return "is a trunk"
        if line == "no switchport" or line.startswith("ip address "):
            return "is routed"
    return ""


def _parse_dell_settings(answer: str) -> PortSettings:
    name = re.search(r"Port (\S+?):", answer)
    mode = re.search(r"VLAN Membership mode:\s*(\w+)", answer)
    vlan = re.search(r"PVID:\s*(\d+)", answer)
    if name is None or mode is None or vlan is None:
        raise ParseError(f"the device printed no VLAN of the port: {format_answer(answer)}")
    line = f"switchport access vlan {vlan[1]}"
    is_access = mode[1].lower() == "access"
    obstacle = "" if is_access else f"is in {mode[1].lower()} mode"
    # Whether it is enabled is in another table.
    return PortSettings(
        f"ethernet {name[1]}",
        is_enabled=True,
        vlan=int(vlan[1]),
        vlan_line=line,
        obstacle=obstacle,
    )


def parse_is_enabled(port: str, answer: str) -> bool:
    """Parse the column “Admin State” of a port."""
    row = re.search(
        rf"^{re.escape(port)}\s+(?:\S+\s+){{5}}(Up|Down)\s", answer, re.MULTILINE | re.IGNORECASE
    )
    if row is None or "Admin" not in answer:
        raise ParseError(f"the device printed no state of {port}: {format_answer(answer)}")
    return row[1] == "Up"


def parse_archive(answer: str) -> bool:
    if "Archive feature not enabled" in answer:
        return False
    if "archive" in answer.lower():
        return True
    raise ParseError(f"the device printed no archive: {format_answer(answer)}")
