"""Parsers of HSRP and VRRP groups, with recorded output of routers."""

from pathlib import Path

import pytest

from connectors import gateway
from connectors.gateway import Gateway, TrackedObject
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "network"


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


def test_hsrp_groups_of_a_cisco_are_parsed():
    vlan111, bdi10, vlan703, wan = gateway.parse_gateways(answer("cisco-standby"))
    assert vlan111 == Gateway(
        *("HSRP", "Vlan111", 1, "192.168.77.62", "Standby", 255),
        standby_router="local",
        tracked_objects=(TrackedObject("object 1", is_up=True),),
        is_preempting=True,
    )
    assert (bdi10.is_active, bdi10.standby_router) == (True, "203.57.147.3")
    assert vlan703.tracked_objects == (TrackedObject("interface Dialer0", is_up=True),)
    assert wan.tracked_objects == (TrackedObject("object 1", is_up=False, is_known=False),)
    assert str(wan) == "GigabitEthernet0/1.2951 group 1 (111.222.230.17)"


def test_hsrp_groups_without_standby_router_and_tracking_are_parsed():
    first, second = gateway.parse_gateways(answer("cisco-standby-alone"))
    assert (first.standby_router, first.tracked_objects, first.is_preempting) == (
        "unknown",
        (),
        True,
    )
    assert second.is_preempting is False


def test_hsrp_group_with_several_tracked_objects_is_parsed():
    text = answer("cisco-standby").replace(
        "    Track object 1 state Up decrement 60\n",
        "    Track object 1 state Down decrement 60\n    Track object 2 state Up decrement 9\n",
    )
    assert gateway.parse_gateways(text)[0].tracked_objects == (
        TrackedObject("object 1", is_up=False),
        TrackedObject("object 2", is_up=True),
    )


def test_vrrp_groups_of_a_cisco_are_parsed():
    groups = gateway.parse_gateways(answer("cisco-vrrp-brief"))
    assert [each.state for each in groups] == ["Master", "Master", "Backup", "Init", "Backup"]
    assert groups[0].group_key == ("VRRP", 1, "192.168.88.1")
    assert (groups[0].tracked_objects, groups[3].is_working) == (None, False)


@pytest.mark.parametrize(
    ("name", "state", "priority"),
    [
        ("frr-8.4-vrrp-master", "Master", 210),
        ("frr-8.4-vrrp-backup", "Backup", 180),
        ("frr-8.4-vrrp-cut-1", "Master", 210),
        ("frr-8.4-vrrp-cut-2", "Master", 180),
    ],
)
def test_vrrp_group_of_frr_is_parsed(name: str, state: str, priority: int):
    (group,) = gateway.parse_gateways(answer(name))
    assert group == Gateway("VRRP", "ve1", 5, "10.81.0.1", state, priority, is_preempting=True)


@pytest.mark.parametrize(
    "text", ["", "\n", "[\n]\n", answer("cisco-vrrp-brief").splitlines()[0] + "\n\n"]
)
def test_router_without_groups_has_no_gateways(text: str):
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
def test_invalid_gateway_answer_is_not_understood(text: str):
    assert not is_understood(lambda: gateway.parse_gateways(text))
