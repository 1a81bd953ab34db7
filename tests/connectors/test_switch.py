"""Parsers of ports, link aggregations and VLANs, with recorded output of switches."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from connectors import switch
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.switch import Lag, LagMember, SwitchPort, Vlan
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "network"
INVALID = "                    ^\n% Invalid input detected at '^' marker.\n"


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


def test_ports_of_a_cisco_are_parsed():
    ports = switch.parse_ports(answer("cisco-interfaces-status"))
    assert len(ports) == 16
    assert ports[1] == SwitchPort("Gi1/0/2", "up", "AccessPoint", "8", "a-full", "a-1000")
    assert ports[0] == SwitchPort("Gi1/0/1", "down", "", "1", "auto", "auto")
    assert {port.state for port in ports} == {
        *("up", "down", "suspended", "err-disabled", "disabled", "monitoring")
    }


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        (
            "cisco-interfaces-err-disabled",
            {"Gi1/0/3": "bpduguard", "Gi1/0/16": "psecure-violation"},
        ),
        (
            "arista-interfaces-errdisabled",
            {"Et23": "link-flap", "Et33": "speed-misconfigured"},
        ),
    ],
)
def test_reasons_of_err_disabled_ports_are_parsed(name: str, reasons: dict[str, str]):
    assert switch.query_stop_reasons().parse(answer(name)) == reasons


def test_ports_of_a_dell_are_parsed():
    ports = switch.parse_ports(answer("dell-interfaces-status"))
    assert ports[1] == SwitchPort("g6", "up", duplex="Full", speed="100")
    assert ports[3] == SwitchPort("g36", "down")
    assert len(ports) == 6


def test_interfaces_of_frr_are_parsed():
    link0, lo, vrrp = switch.parse_ports(answer("frr-8.4-interfaces"))
    assert lo == SwitchPort("lo", "up")
    assert link0 == SwitchPort("link0", "up", note="10.81.0.2/24")
    assert vrrp.name == "vrrp4-2-1"


def test_ports_of_arista_hp_and_junos_are_parsed():
    """Known states are translated into Keyturn's words."""
    states = {
        name: [port.state for port in switch.parse_ports(answer(name))]
        for name in ("arista-interfaces-status", "hp-interfaces-brief", "junos-interfaces")
    }
    assert states == {
        "arista-interfaces-status": ["up", "inactive", "down", "err-disabled"],
        "hp-interfaces-brief": ["up", "down", "down", "disabled", "down", "down"],
        "junos-interfaces": ["up"],
    }
    assert switch.parse_ports(answer("hp-interfaces-brief"))[0].speed == "100"
    text = answer("junos-interfaces").replace(
        "Enabled, Physical link is Up", "Administratively down, Physical link is Down"
    )
    assert [port.state for port in switch.parse_ports(text)] == ["disabled"]


def test_lags_of_arista_and_junos_are_parsed():
    down, many, up = switch.parse_lags(answer("arista-lags"))
    assert (down.is_up, len(many.members or ())) == (False, 5)
    assert up == Lag("Po2000", True, "LACP", (LagMember("Et54/1", "bundled"),))
    assert switch.parse_lags(answer("arista-lags-none")) == ()
    one, two = switch.parse_lags(answer("junos-lacp"))
    assert [member.port for member in two.bundled_members] == ["et-0/0/32", "et-0/0/33"]
    assert (one.name, one.is_up) == ("ae33", True)


def test_vlans_of_dell_arista_hp_and_junos_are_parsed():
    ports = {
        name: {vlan.number: vlan.ports for vlan in switch.parse_vlans(answer(name))}
        for name in ("dell-vlan", "arista-vlan", "hp-vlans", "junos-vlans")
    }
    assert ports["dell-vlan"][1] == (
        *("1/e(1-12,14-48)", "1/g(1-4)", "2/e(1-48)", "2/g(1-4)", "3/e(1-48)", "ch(1-8)"),
    )
    assert ports["dell-vlan"][100] == ("1/e13",)
    assert ports["arista-vlan"] == {1: ("Et1",), 10: ("Et1", "Et2"), 20: (), 30: ()}
    assert ports["hp-vlans"] == {1: None, 66: None, 996: None}
    assert ports["junos-vlans"][1005] == ("ae0.0", "ge-0/0/7.0")
    long = switch.parse_vlans(answer("dell-vlan"))[3]
    assert long.name == "0123456789123456789"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("Gi1/0/3", "GigabitEthernet1/0/3", True),
        ("Gi1/0/3", "Gig 1/0/3", True),
        ("gi1/0/3", "Gi1/0/30", False),
        ("Te1/0/3", "Gi1/0/3", False),
        ("g3", "G3", True),
        ("1/g3", "1/g3", True),
        ("1/g3", "2/g3", False),
        ("3", "3", True),
    ],
)
def test_short_and_long_names_of_one_port_are_the_same_port(one: str, other: str, is_same: bool):
    assert switch.is_same_port(one, other) is is_same


def test_port_name_is_shortened_as_switches_print_it():
    names = ("GigabitEthernet1/0/3", "Gig 1/0/3", "TenGigabitEthernet1/0/3", "G3", "1/g3", "Po7")
    assert [switch.shorten_port(name) for name in names] == [
        *("Gi1/0/3", "Gi1/0/3", "Te1/0/3", "g3", "1/g3", "Po7"),
    ]


def test_lags_of_a_cisco_are_parsed():
    lags = switch.parse_lags(answer("cisco-etherchannel"))
    assert [(lag.name, len(lag.bundled_members)) for lag in lags] == [
        *(("Po1", 4), ("Po3", 2), ("Po7", 2), ("Po13", 1), ("Po14", 1), ("Po51", 2))
    ]
    assert lags[0].members == tuple(
        LagMember(port, "bundled") for port in ("Te6/4", "Te3/5", "Te9/4", "Te5/5")
    )
    (layer3,) = switch.parse_lags(answer("cisco-etherchannel-bndl"))
    bundled = (LagMember("Te0/0/2", "bundled"), LagMember("Te0/0/3", "bundled"))
    assert layer3 == Lag("Po10", is_up=True, protocol="LACP", members=bundled)


def test_lags_of_a_dell_leave_out_channels_that_are_not_present():
    text = answer("dell-interfaces-status")
    assert switch.parse_lags(text) == ()
    up = text.replace("--    Not Present", "--    Up", 1)
    assert switch.parse_lags(up) == (Lag("ch1", is_up=True, protocol="", members=None),)


def test_cisco_without_lags_is_parsed_as_empty():
    text = answer("cisco-etherchannel").split("1      Po1")[0].replace("in use: 6", "in use: 0")
    assert switch.parse_lags(text) == ()


@pytest.mark.parametrize("name", ["port-channel1", "Po1", "po1", "1", "ch1", "Port-channel 1"])
def test_lag_is_found_by_each_of_its_names(name: str):
    lag = switch.find_lag(name, switch.parse_lags(answer("cisco-etherchannel")))
    assert lag is not None
    assert lag.name == "Po1"


def test_missing_lag_is_not_found():
    assert switch.find_lag("Po9", switch.parse_lags(answer("cisco-etherchannel"))) is None


def test_vlans_of_a_cisco_are_parsed():
    vlans = switch.parse_vlans(answer("cisco-vlan"))
    assert vlans[0] == Vlan(1, "default", "active", ("Gi0/1",))
    assert len(vlans[2].ports or ()) == 12
    assert vlans[-1].state == "act/unsup"


# An error is never a device with nothing on it, though templates find nothing in both.
STRANGE = (
    INVALID,
    answer("frr-8.4-unknown"),
    "",
    "% Incomplete command.\n",
    "sw1#",
    "Unrecognized command\n",
    "Port      Name               Status       Vlan       Duplex  Speed Type\n",
    '{"lo": 1}',
    '{"lo": {"status": "up"}}',
    "{",
)


@pytest.mark.parametrize("text", STRANGE)
def test_invalid_switch_answer_is_not_understood(text: str):
    for parse in (switch.parse_ports, switch.parse_lags, switch.parse_vlans):
        assert not is_understood(partial(parse, text))


@pytest.mark.parametrize(
    "text",
    [
        answer("cisco-etherchannel").replace("in use: 6", "in use: 7"),
        answer("cisco-etherchannel").replace("Po3(SU)", "Po3"),
        answer("dell-interfaces-status").replace("Not Present", "Perhaps"),
        answer("dell-interfaces-status").split("\nCh ")[0],
        answer("cisco-interfaces-status").replace("connected ", "levitating", 1),
    ],
)
def test_partly_valid_list_of_lags_is_not_understood(text: str):
    assert not is_understood(lambda: switch.parse_lags(text))
    if "Po1       ethchl" in text:
        assert not is_understood(lambda: switch.parse_ports(text))


def test_switch_command_that_the_device_lacks_is_explained():
    for query in (switch.query_ports(), switch.query_lags(), switch.query_vlans()):
        assert "lacks the feature" in str(
            find_failure(query.command, Answer(1, INVALID), frozenset({0}))
        )


NXOS_PORTS = f"""{"-" * 80}
Port          Name               Status    Vlan      Duplex  Speed   Type
{"-" * 80}
Eth1/1        --                 connected trunk     full    10G     10Gbase-SR
Eth1/2        --                 xcvrAbsen trunk     auto    auto    --
"""
NXOS_LAGS = """Flags:  D - Down        P - Up in port-channel (members)
        I - Individual  H - Hot-standby (LACP only)
Group Port-       Type     Protocol  Member Ports
      Channel
1     Po1(SU)     Eth      LACP      Eth1/1(P)    Eth1/2(P)
"""
EOS_LAGS = """Number of channels in use: 1
Number of aggregators:1

Port-Channel Protocol  Ports
------------ --------- --------------------------------------------------------
Po1(U)       LACP(a)    Et3/36/1(PG+)
"""


@pytest.mark.parametrize(
    ("parse", "text", "system"),
    [
        (switch.parse_ports, NXOS_PORTS, "Cisco NX-OS"),
        (switch.parse_lags, NXOS_LAGS, "Cisco NX-OS"),
        (switch.parse_lags, EOS_LAGS, "Arista EOS"),
        (switch.parse_lags, "bash: show: command not found\n", "a shell"),
        (switch.parse_vlans, "sh: 1: show: not found\n", "a shell"),
    ],
)
def test_switch_answer_of_another_platform_names_that_platform(
    parse: Callable[[str], object], text: str, system: str
):
    with pytest.raises(ParseError, match=f"It looks like {system}, not like the platform"):
        parse(text)


def test_switch_command_that_nx_os_does_not_know_names_nx_os():
    failure = Answer(1, "                 ^\n% Invalid command at '^' marker.\n")
    for query in (switch.query_ports(), switch.query_lags(), switch.query_vlans()):
        assert "looks like Cisco NX-OS" in str(
            find_failure(query.command, failure, frozenset({0}))
        )


def test_invalid_answer_of_the_same_platform_names_no_other_platform():
    with pytest.raises(ParseError) as error:
        switch.parse_lags(answer("cisco-vlan"))
    assert "looks like" not in str(error.value)


def test_findings_of_a_lag_name_members_that_are_not_bundled():
    members = (
        LagMember("Gi0/1", "bundled"),
        LagMember("Gi0/2", "suspended"),
        LagMember("Gi0/3", "down"),
    )
    lag = Lag("Po1", is_up=True, protocol="LACP", members=members)
    assert lag.findings == [
        "Gi0/2 is not bundled into Po1: suspended",
        "Gi0/3 is not bundled into Po1: down",
        "Po1 has only one bundled port, Gi0/1: no redundancy",
    ]
    assert Lag("Po1", is_up=True, protocol="", members=()).findings == [
        "Po1 has no bundled port: it carries no traffic"
    ]
    assert Lag("Po1", is_up=False, protocol="", members=members).findings == ["Po1 is down"]
    assert Lag("ch1", is_up=True, protocol="", members=None).findings == []
