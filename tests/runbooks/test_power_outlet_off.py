import pytest

from connectors import pdu
from connectors.command import SnmpSet
from runbooks import Leg, Refused
from runbooks._power import read_outlet
from runbooks.power_outlet_off import TurnOutletOff
from tests.runbooks.power import LEGS, outlet, sent
from tests.scripted_fleet import ScriptedFleet, inventory_of

OFF = TurnOutletOff.model_validate({"host": "pdu1", "outlet": "3"})


def test_power_outlet_off_names_and_takes_down_what_is_behind_it():
    plan = OFF.plan(outlet("on"))
    (step,) = plan.steps
    assert step.title == "Turn off outlet 3 of pdu1 (web1/psu1, switch3)"
    assert (step.do, step.undo) == (SnmpSet((sent(2),)), SnmpSet((sent(1),)))
    assert (step.before, step.after) == ("on", "off")
    assert plan.takes_down == LEGS
    assert plan.notes == ["The power strip calls this outlet “Outlet 3”."]


def test_power_outlet_that_is_off_plans_no_steps_and_takes_nothing_down():
    plan = OFF.plan(outlet("off"))
    assert (plan.steps, plan.takes_down) == ((), ())


def test_power_outlet_off_refuses_an_outlet_that_the_inventory_lacks():
    with pytest.raises(Refused, match=r'power\.outlets: "3=web1/psu1"'):
        OFF.plan(outlet("on", behind=None))
    plan = OFF.plan(outlet("on", behind=()))
    assert plan.steps[0].title == "Turn off outlet 3 of pdu1 (nothing)"
    assert plan.takes_down == ()


def test_power_outlet_is_read_with_what_is_behind_it_and_must_exist():
    lines = "".join(f".{sent(0).split('.3.3.1')[0]}.3.5.1.1.4.{n} = INTEGER: 1\n" for n in (1, 2))
    entry = inventory_of("pdu1")["pdu1"].model_dump(exclude={"host_key"})
    snmp = {"community_file": "c"}
    more = {"platform": "snmp", "snmp": snmp, "settings": {"power.outlets": "1=web1,db1/psu2"}}
    inventory = type(inventory_of("x")).model_validate({"hosts": {"pdu1": {**entry, **more}}})
    fleet = ScriptedFleet({("pdu1", pdu.query_outlets().command): lines}, inventory=inventory)
    state = read_outlet(fleet.run_query, "pdu1", "1")
    assert state.behind == (Leg("web1"), Leg("db1", "psu2"))
    assert read_outlet(fleet.run_query, "pdu1", "2").behind is None
    with pytest.raises(Refused, match="no outlet 3: it has 1 to 2"):
        read_outlet(fleet.run_query, "pdu1", "3")
