"""Parser of a port's configuration, with recorded output, and the lines that change it."""

import re
from pathlib import Path

import pytest

from connectors import switch_port
from connectors.command import Setting, SwitchLines
from connectors.errors import ParseError, SettingError
from connectors.probation import DEVICE, find_armed_change, find_kept_change, parse_timer
from connectors.switch_port import PortSettings

ANSWERS = Path(__file__).parent / "answers" / "network"
# As Cisco documents `show running-config interface`.
CISCO = """Building configuration...

Current configuration : 152 bytes
!
interface GigabitEthernet1/0/3
 description the shutdown of lb1
 switchport access vlan 16
 switchport mode access
{more} spanning-tree portfast
end

"""


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


def test_port_settings_of_a_cisco_are_parsed():
    assert switch_port.parse_settings(CISCO.format(more="")) == PortSettings(
        "GigabitEthernet1/0/3", is_enabled=True, vlan=16, vlan_line="switchport access vlan 16"
    )
    off = switch_port.parse_settings(CISCO.format(more=" shutdown\n"))
    assert (off.is_enabled, off.can_revert) == (False, True)
    plain = switch_port.parse_settings("interface FastEthernet0/1\nend\n")
    assert (plain.vlan, plain.vlan_line) == (1, "no switchport access vlan")


@pytest.mark.parametrize(
    ("line", "obstacle"),
    [
        ("switchport mode trunk", "is a trunk"),
        ("channel-group 7 mode active", "is a member of port-channel 7"),
        ("no switchport", "is routed"),
        ("ip address 192.0.2.1 255.255.255.0", "is routed"),
        ("switchport nonegotiate", ""),
    ],
)
def test_port_that_is_no_access_port_has_an_obstacle(line: str, obstacle: str):
    assert switch_port.parse_settings(CISCO.format(more=f" {line}\n")).obstacle == obstacle


def test_port_settings_of_a_dell_are_parsed():
    text = answer("dell-switchport")
    settings = switch_port.parse_settings(text)
    assert (settings.interface, settings.obstacle) == ("ethernet 1/g1", "is in general mode")
    assert not settings.can_revert
    access = switch_port.parse_settings(
        text.replace("General", "Access").replace("PVID: 1", "PVID: 8")
    )
    assert (access.vlan, access.vlan_line, access.obstacle) == (8, "switchport access vlan 8", "")
    states = answer("dell-interfaces-configuration")
    assert switch_port.parse_is_enabled("1/g1", states)
    off = re.sub(r"(?m)^(1/e2 .*Off      )Up  ", r"\1Down", states)
    assert not switch_port.parse_is_enabled("1/e2", off)


@pytest.mark.parametrize("text", ["", "% Invalid input\n", "interface\nend\n"])
def test_invalid_port_settings_are_a_parse_error(text: str):
    for parse in (switch_port.parse_settings, switch_port.parse_archive, parse_timer):
        with pytest.raises(ParseError):
            parse(text)
    with pytest.raises(ParseError):
        switch_port.parse_is_enabled("g3", text)


def test_config_archive_and_revert_timer_of_a_cisco_are_parsed():
    assert not switch_port.parse_archive(" Archive feature not enabled\n")
    assert switch_port.parse_archive("The maximum archive configurations allowed is 10.\n")
    assert parse_timer(answer("cisco-rollback-timer")).armed == DEVICE.change
    assert not parse_timer("%No Rollback Confirmed Change pending\n").armed


def test_port_lines_with_a_revert_timer_are_recognised_as_probation():
    settings = switch_port.parse_settings(CISCO.format(more=""))
    lines = switch_port.make_lines(settings, "shutdown", with_timer=True)
    assert lines == SwitchLines(
        ("configure terminal revert timer 5", "interface GigabitEthernet1/0/3", "shutdown")
    )
    assert (find_armed_change(lines), find_kept_change(lines)) == (DEVICE, None)
    plain = switch_port.make_lines(settings, "shutdown", with_timer=False)
    assert (find_armed_change(plain), find_kept_change(plain)) == (None, None)
    confirm = SwitchLines(("configure confirm",))
    assert (find_armed_change(confirm), find_kept_change(confirm)) == (None, DEVICE)
    assert (confirm.new_connection, lines.new_connection) == (True, False)


def test_switch_uplinks_of_the_inventory_are_port_names():
    query = switch_port.query_uplinks()
    assert isinstance(query.command, Setting)
    assert query.parse(query.command.resolve({})) == ()
    assert query.parse(query.command.resolve({"switch.uplinks": "Gi1/0/24 Po1"})) == (
        *("Gi1/0/24", "Po1"),
    )
    with pytest.raises(SettingError):
        query.command.resolve({"switch.uplinks": "the first; reload"})
