from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.command import CONFIRM, Answer, QueryCommand, SwitchLines
from connectors.errors import CommandError
from connectors.switch_tables import Neighbour
from runbooks import Leg, Refused
from runbooks._lists import LISTS
from runbooks.switch_port import DisablePort, EnablePort, PortState, SetPortVlan
from tests.runbooks.hostile import HOSTILE_NAMES
from tests.runbooks.network import build_network_fleet, recorded
from tests.scripted_fleet import Replies, ScriptedFleet

VALUES = {"host": "sw1", "port": "GigabitEthernet1/0/3"}
DISABLE = DisablePort.model_validate(VALUES)
ENABLE = EnablePort.model_validate(VALUES)
SET_VLAN = SetPortVlan.model_validate(VALUES | {"vlan": 50})
RUNNING = """interface GigabitEthernet1/0/3
 switchport access vlan 10
 switchport mode access
end
"""
TIMER = "configure terminal revert timer 5"
PORT = "interface GigabitEthernet1/0/3"


def cisco(
    more: Mapping[str, Replies] = {}, settings: Mapping[str, str] | None = None
) -> ScriptedFleet:
    answers: dict[tuple[str, str | QueryCommand], Replies] = {
        ("sw1", "show interfaces status"): recorded("cisco-interfaces-status"),
        ("sw1", "show interfaces status err-disabled"): recorded("cisco-interfaces-err-disabled"),
        ("sw1", "show running-config interface Gi1/0/3"): RUNNING,
        ("sw1", "show vlan"): recorded("cisco-vlan"),
        ("sw1", "show cdp neighbors"): recorded("cisco-cdp-neighbours"),
        ("sw1", "show lldp neighbors"): Answer(1, "% LLDP is not enabled"),
        ("sw1", "show archive"): "The next archive file will be named flash:old-1",
        ("sw1", "show archive config rollback timer"): Answer(
            1, "%No Rollback Confirmed Change pending"
        ),
        **{("sw1", line): reply for line, reply in more.items()},
    }
    scripted = build_network_fleet(answers, platforms={"sw1": "cisco_ios"})
    hosts = {
        "sw1": scripted.inventory["sw1"].model_copy(update={"settings": dict(settings or {})})
    }
    scripted.inventory = scripted.inventory.model_copy(update={"hosts": hosts})
    return scripted


def state(
    more: Mapping[str, Replies] = {}, settings: Mapping[str, str] | None = None
) -> PortState:
    return DISABLE.read(cisco(more, settings).run_query)


def test_switch_port_is_disabled_on_probation_and_kept_over_a_new_connection():
    plan = DISABLE.plan(state())
    change, keep = plan.steps
    assert change.do == SwitchLines((TIMER, PORT, "shutdown"))
    assert (change.before, change.after) == ("enabled", "disabled")
    assert (keep.do, change.undo) == (CONFIRM, CONFIRM)
    assert keep.undo == SwitchLines((TIMER, PORT, "no shutdown"))
    assert plan.current_state == "Gi1/0/3 is enabled, and its link is down"
    assert "within 5 minutes" in plan.notes[0]
    assert DISABLE.takes_down() == [Leg("sw1", "Gi1/0/3")]
    assert ENABLE.takes_down() == ()


def test_switch_port_that_is_as_requested_plans_no_steps():
    off = {"show running-config interface Gi1/0/3": f"{PORT}\n switchport mode trunk\n shutdown\n"}
    assert DISABLE.plan(state(off)).steps == ()
    assert ENABLE.plan(state()).steps == ()
    assert SET_VLAN.model_copy(update={"vlan": 10}).plan(state()).steps == ()


def test_disabled_switch_port_is_enabled():
    off = {"show running-config interface Gi1/0/3": f"{RUNNING.replace('end', ' shutdown')}"}
    change, _ = ENABLE.plan(state(off)).steps
    assert change.do == SwitchLines((TIMER, PORT, "no shutdown"))


def test_err_disabled_switch_port_is_shut_down_and_enabled():
    stopped = recorded("cisco-interfaces-status").replace(
        "John's Office      notconnect  ", "John's Office      err-disabled"
    )
    plan = ENABLE.plan(state({"show interfaces status": stopped}))
    change, keep = plan.steps
    assert plan.current_state == "Gi1/0/3 is err-disabled (bpduguard)"
    assert change.title == "Shut Gi1/0/3 down and enable it"
    assert change.do == SwitchLines((TIMER, PORT, "shutdown", "no shutdown"))
    assert (change.before, change.after) == ("err-disabled (bpduguard)", "enabled")
    assert keep.undo == SwitchLines((TIMER, PORT, "shutdown"))
    assert plan.notes[0] == "Find the cause first: while it lasts, sw1 stops Gi1/0/3 again."
    change, _ = DISABLE.plan(state({"show interfaces status": stopped})).steps
    assert (change.before, change.after) == ("err-disabled (bpduguard)", "disabled")
    assert change.do == SwitchLines((TIMER, PORT, "shutdown"))


@pytest.mark.parametrize(
    ("running", "undo"),
    [
        (RUNNING, "switchport access vlan 10"),
        (RUNNING.replace(" switchport access vlan 10\n", ""), "no switchport access vlan"),
    ],
)
def test_undo_of_a_port_vlan_restores_the_previous_line(running: str, undo: str):
    change, keep = SET_VLAN.plan(state({"show running-config interface Gi1/0/3": running})).steps
    assert change.do == SwitchLines((TIMER, PORT, "switchport access vlan 50"))
    assert keep.undo == SwitchLines((TIMER, PORT, undo))


def test_switch_port_vlan_that_the_switch_lacks_is_refused():
    with pytest.raises(Refused, match="sw1 has no VLAN 77: create it there first"):
        SET_VLAN.model_copy(update={"vlan": 77}).plan(state())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (" switchport mode trunk\n", "Gi1/0/3 is a trunk"),
        (" channel-group 1 mode active\n", "is a member of port-channel 1"),
        (" no switchport\n", "is routed"),
    ],
)
def test_switch_port_that_is_no_access_port_is_refused(line: str, why: str):
    running = RUNNING.replace("end\n", f"{line}end\n")
    with pytest.raises(Refused, match=why):
        DISABLE.plan(state({"show running-config interface Gi1/0/3": running}))


def test_switch_uplink_is_refused_by_its_mode_and_by_the_inventory():
    trunk = recorded("cisco-interfaces-status").replace(
        "Gi1/0/3   John's Office      notconnect   1  ",
        "Gi1/0/3   John's Office      connected    trunk",
    )
    for reading in (
        state({"show interfaces status": trunk}),
        state(settings={"switch.uplinks": "Po1 gi1/0/3"}),
    ):
        with pytest.raises(Refused, match="Gi1/0/3 is an uplink of sw1"):
            DISABLE.plan(reading)
    assert DISABLE.plan(state(settings={"switch.uplinks": "Po1 Gi1/0/24"})).steps


def test_switch_port_that_leads_to_a_switch_needs_uplink_allow():
    cdp = recorded("cisco-cdp-neighbours").replace("Gig 1/0/1 134", "Gig 1/0/3 134")
    reading = state({"show cdp neighbors": cdp})
    with pytest.raises(Refused, match=r"leads to router.domain.local \(CDP\).*uplink=allow"):
        DISABLE.plan(reading)
    plan = DISABLE.model_copy(update={"uplink": "allow"}).plan(reading)
    assert "router.domain.local is at the other end (CDP)." in plan.notes
    phone = replace(reading, neighbours=[Neighbour("Gi1/0/3", "p", "", "LLDP", frozenset("BT"))])
    assert DISABLE.plan(phone).steps


def test_switch_without_config_archive_needs_revert_none():
    reading = state({"show archive": " Archive feature not enabled"})
    with pytest.raises(Refused, match=r"set `archive` and its `path`.*revert=none"):
        DISABLE.plan(reading)
    (step,) = DISABLE.model_copy(update={"revert": "none"}).plan(reading).steps
    assert step.do == SwitchLines((PORT, "shutdown"))
    assert step.undo == SwitchLines((PORT, "no shutdown"))
    lacks = state({"show archive": Answer(1, "% Invalid input detected at '^' marker.")})
    assert not lacks.can_revert


def test_switch_port_refuses_while_another_change_awaits_confirmation():
    reading = state({"show archive config rollback timer": recorded("cisco-rollback-timer")})
    with pytest.raises(Refused, match="waits for its confirmation already"):
        DISABLE.plan(reading)


def test_neighbour_of_a_switch_port_is_unknown_when_cdp_is_off():
    reading = state({"show cdp neighbors": Answer(1, "% CDP is not enabled")})
    assert reading.neighbours is None
    assert "It is unknown what is at the other end of Gi1/0/3." in DISABLE.plan(reading).notes
    with pytest.raises(CommandError):
        state({"show cdp neighbors": Answer(1, "% Authorization failed.")})


def test_dell_switch_without_a_revert_timer_needs_revert_none():
    answers: dict[tuple[str, str | QueryCommand], Replies] = {
        ("sw2", "show interfaces status"): recorded("dell-interfaces-status").replace(
            "g6 ", "1/g1 "
        ),
        ("sw2", "show interfaces switchport ethernet 1/g1"): recorded("dell-switchport").replace(
            "General", "Access"
        ),
        ("sw2", "show interfaces configuration ethernet 1/g1"): recorded(
            "dell-interfaces-configuration"
        ),
        ("sw2", "show vlan"): recorded("dell-vlan"),
    }
    dell = build_network_fleet(answers, platforms={"sw2": "dell_powerconnect"})
    asked = SetPortVlan.model_validate({"host": "sw2", "port": "1/g1", "vlan": 100})
    reading = asked.read(dell.run_query)
    with pytest.raises(Refused, match=r"its software has no timer.*revert=none"):
        asked.plan(reading)
    (step,) = asked.model_copy(update={"revert": "none"}).plan(reading).steps
    assert step.do == SwitchLines(("interface ethernet 1/g1", "switchport access vlan 100"))
    assert step.undo == SwitchLines(("interface ethernet 1/g1", "switchport access vlan 1"))


def test_missing_switch_port_is_refused():
    with pytest.raises(Refused, match="sw1 has no port Gi9/0/3"):
        DISABLE.model_copy(update={"port": "Gi9/0/3"}).read(cisco().run_query)


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "Gi1/0/3 shutdown", "3", "Gi1/0/3\nend"])
def test_switch_port_with_an_invalid_name_is_refused(name: object):
    with pytest.raises(ValidationError):
        DisablePort.model_validate(VALUES | {"port": name})


@pytest.mark.parametrize("vlan", [0, 4095, -1, "1-20", "1,20", 2.5, "x"])
def test_switch_port_with_an_invalid_vlan_is_refused(vlan: Any):
    with pytest.raises(ValidationError):
        SetPortVlan.model_validate(VALUES | {"vlan": vlan})


def test_switch_port_form_offers_the_ports_of_the_switch():
    assert "Gi1/0/3" in list(LISTS["switch ports"](cisco().run_query, "sw1", {}))
