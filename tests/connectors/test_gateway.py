"""What routers said of HSRP and VRRP, and what it means."""

from pathlib import Path

import pytest

from connectors import gateway
from connectors.gateway import Gateway, Track
from connectors.trouble import NotUnderstood

ANSWERS = Path(__file__).parent / "answers" / "network"


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


def test_the_hsrp_groups_of_a_cisco():
    vlan111, bdi10, vlan703, wan = gateway.parse_gateways(answer("cisco-standby"))
    assert vlan111 == Gateway(
        *("HSRP", "Vlan111", 1, "192.168.77.62", "Standby", 255),
        standby="local",
        tracks=(Track("object 1", up=True),),
        preempts=True,
    )
    assert (bdi10.leads, bdi10.standby) == (True, "203.57.147.3")
    assert vlan703.tracks == (Track("interface Dialer0", up=True),)
    assert wan.tracks == (Track("object 1", up=False, known=False),)
    assert str(wan) == "GigabitEthernet0/1.2951 group 1 (111.222.230.17)"


def test_a_group_without_standby_and_tracking():
    first, second = gateway.parse_gateways(answer("cisco-standby-alone"))
    assert (first.standby, first.tracks, first.preempts) == ("unknown", (), True)
    assert second.preempts is False


def test_a_group_may_track_several_things():
    text = answer("cisco-standby").replace(
        "    Track object 1 state Up decrement 60\n",
        "    Track object 1 state Down decrement 60\n    Track object 2 state Up decrement 9\n",
    )
    assert gateway.parse_gateways(text)[0].tracks == (
        Track("object 1", up=False),
        Track("object 2", up=True),
    )


def test_the_vrrp_groups_of_a_cisco():
    groups = gateway.parse_gateways(answer("cisco-vrrp-brief"))
    assert [each.state for each in groups] == ["Master", "Master", "Backup", "Init", "Backup"]
    assert groups[0].same == ("VRRP", 1, "192.168.88.1")
    assert (groups[0].tracks, groups[3].works) == (None, False)


@pytest.mark.parametrize(
    ("name", "state", "priority"),
    [
        ("frr-8.4-vrrp-master", "Master", 210),
        ("frr-8.4-vrrp-backup", "Backup", 180),
        ("frr-8.4-vrrp-cut-1", "Master", 210),
        ("frr-8.4-vrrp-cut-2", "Master", 180),
    ],
)
def test_the_vrrp_groups_of_frr(name: str, state: str, priority: int):
    (group,) = gateway.parse_gateways(answer(name))
    assert group == Gateway("VRRP", "ve1", 5, "10.81.0.1", state, priority, preempts=True)


@pytest.mark.parametrize(
    "text", ["", "\n", "[\n]\n", answer("cisco-vrrp-brief").splitlines()[0] + "\n\n"]
)
def test_no_groups_are_none(text: str):
    assert gateway.parse_gateways(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "% Invalid input detected at '^' marker.\n",
        "                    ^\n% Invalid input detected at '^' marker.\n",
        "sw1#",
        "vrrpd is not running\n",
        "[{}]",
        "[1]",
        "[",
        answer("cisco-standby").replace("State is Standby", "State was Standby"),
        answer("cisco-standby").replace("Priority 255 (", "Rank 255 (", 1),
        answer("cisco-standby").replace("  Hello", "Hello", 1),
        answer("cisco-vrrp-brief").replace("Fa0/1.2", "Fa0/1.2 ?"),
        answer("frr-8.4-vrrp-master").replace("effectivePriority", "priority"),
    ],
)
def test_what_is_not_understood_is_never_a_router_without_groups(text: str):
    with pytest.raises(NotUnderstood):
        gateway.parse_gateways(text)
