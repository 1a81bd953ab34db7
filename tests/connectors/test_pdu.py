"""Outlets of power strips: parsers of their SNMP tables, and the commands that set them."""

import pytest
from pydantic import ValidationError

from connectors import pdu
from connectors.command import Setting, SnmpSet, SnmpWalk
from connectors.errors import ParseError, SettingError, SetupError
from connectors.inventory import Host

APC = ".1.3.6.1.4.1.318.1.1"
RARITAN = ".1.3.6.1.4.1.13742.6"
# As NUT shows a strip of APC (drivers/apc-pdu-mib.c), and Raritan's guide one of theirs.
RPDU = f"""\
{APC}.12.3.5.1.1.4.1 = INTEGER: 1
{APC}.12.3.5.1.1.4.10 = INTEGER: 2
{APC}.12.3.5.1.1.4.2 = INTEGER: 4
{APC}.12.3.5.1.1.2.1 = STRING: "Outlet \\"1\\"\\n"
"""
PDU2 = f"""\
{RARITAN}.4.1.2.1.3.1.4 = INTEGER: 8
{RARITAN}.4.1.2.1.3.2.1 = INTEGER: 7
{RARITAN}.3.5.3.1.3.1.4 = STRING: "db1"
"""


def test_apc_outlets_are_sorted_by_number():
    first, second, tenth = pdu.parse_outlets(RPDU)
    assert (first.number, first.state, first.name) == ("1", "on", 'Outlet "1"\n')
    assert (second.number, second.state, second.name) == ("2", "state 4", "")
    assert (tenth.number, tenth.state) == ("10", "off")
    off = pdu.switch_outlet(tenth, "on")
    assert off.lines == (f"{APC[1:]}.12.3.3.1.1.4.10 i 1",)


def test_outlets_of_linked_power_strips_are_distinguished():
    fourth, other = pdu.parse_outlets(PDU2)
    assert (fourth.number, fourth.state, fourth.name) == ("4", "off", "db1")
    assert (other.number, other.state) == ("2.1", "on")
    assert pdu.switch_outlet(other, "cycle").lines == (f"{RARITAN[1:]}.4.1.2.1.2.2.1 i 2",)
    assert pdu.switch_outlet(fourth, "off").lines == (f"{RARITAN[1:]}.4.1.2.1.2.1.4 i 0",)


def test_apc_rpdu2_table_takes_precedence_when_a_strip_has_both():
    newer = f"{APC}.26.9.2.3.1.5.1 = INTEGER: 1\n"
    (outlet,) = pdu.parse_outlets(RPDU + newer)
    assert (outlet.state, outlet.table) == ("off", "rPDU2 of PowerNet-MIB")


@pytest.mark.parametrize(
    "output",
    [
        "",
        f'{APC}.12.3.5.1.1.2.1 = STRING: "a"\n',
        f"{APC}.12.3.5.1.1.4.1 = STRING: on\n",
        f"{APC}.12.3.5.1.1.4.1 = Null: 1\n",
        "Timeout: No Response from pdu1\n",
    ],
)
def test_invalid_outlet_table_is_a_parse_error(output: str):
    with pytest.raises(ParseError):
        pdu.parse_outlets(output)


def test_hosts_behind_an_outlet_are_read_from_the_inventory():
    query = pdu.query_behind()
    command = query.command
    assert isinstance(command, Setting)
    assert query.parse("") == {}
    behind = query.parse("1=web1/psu1 2.3=web2,switch3 3=-")
    assert behind == {"1": ("web1/psu1",), "2.3": ("web2", "switch3"), "3": ()}
    for wrong in ("web1", "1=", "1=Web 1", "1=web1,", "1=web1;2=x", " 1=web1", "1=web1 "):
        with pytest.raises(SettingError, match=r"power\.outlets"):
            command.resolve({"power.outlets": wrong})


@pytest.mark.parametrize(
    "line", ["", "1.3 i x", "1.3 s 1", "1.3 i 1; id", "1.3 i 1\n1.4 i 1", ".1.3 i 1", "exit"]
)
def test_snmp_set_accepts_only_integers(line: str):
    with pytest.raises(ValueError, match="is not an object identifier"):
        SnmpSet((line,))


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqpOcKG0QUlYJdTUTUiDYIiZlWfjkcoaeW6BYlZs/0B"
V3 = {"user": "keyturn", "auth_file": "a", "privacy_file": "p"}


def device(**fields: object) -> Host:
    usual = {"name": "pdu1", "address": "192.0.2.9", "area": "infra", "platform": "snmp"}
    return Host.model_validate({**usual, "snmp": V3, **fields})


def test_snmp_device_has_no_host_key_and_runs_only_snmp():
    host = device()
    assert (host.port, host.fingerprint) == (161, "SNMPv3 user keyturn at 192.0.2.9:161")
    assert device(snmp={"community_file": "c"}).fingerprint == "SNMPv2c at 192.0.2.9:161"
    assert host.resolve(SnmpSet(("1.3 i 1",))) == SnmpSet(("1.3 i 1",))
    linux = device(platform="linux", snmp=None, host_key=KEY)
    for command in (SnmpSet(("1.3 i 1",)), SnmpWalk(("1.3",))):
        with pytest.raises(SetupError, match=r"does not use SNMP .* Nothing was sent"):
            linux.resolve(command)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"snmp": None}, "snmp: set it for a device"),
        ({"platform": "linux", "host_key": KEY}, "snmp: set it for a device"),
        ({"host_key": KEY}, "are for SSH"),
        ({"jump": "gate1"}, "are for SSH"),
        ({"snmp": {"user": "keyturn"}}, "for version 3"),
        ({"snmp": {}}, "for version 3"),
        ({"snmp": {**V3, "community_file": "c"}}, "for version 3"),
        ({"snmp": {"user": "key\nturn", "auth_file": "a", "privacy_file": "p"}}, "pattern"),
    ],
)
def test_inventory_refuses_incomplete_snmp_devices(fields: dict[str, object], why: str):
    with pytest.raises(ValidationError, match=why):
        device(**fields)
