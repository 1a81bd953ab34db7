import json
from dataclasses import replace
from pathlib import Path

import pytest

from bot.model.run import State
from bot.service import KeyturnService
from connectors import pdu
from connectors.command import SnmpSet
from connectors.inventory import Inventory
from connectors.pdu import TABLES
from runbooks import Leg, NoUndo, Refused, load_catalogue
from runbooks.power_outlet import CycleOutlet, OutletState, TurnOutletOff, TurnOutletOn
from tests.bot.harness import open_harness
from tests.runbooks.power import LEGS, get_sent_line, outlet
from tests.scripted_fleet import ScriptedFleet, build_inventory

ON = TurnOutletOn.model_validate({"host": "pdu1", "outlet": "3"})


def test_power_outlet_on_takes_nothing_down():
    plan = ON.plan(outlet("off"))
    (step,) = plan.steps
    assert (step.do, step.undo) == (SnmpSet((get_sent_line(1),)), SnmpSet((get_sent_line(2),)))
    assert step.title == "Turn on outlet 3 of pdu1 (web1/psu1, switch3)"
    assert plan.takes_down == ()


def test_power_outlet_that_is_on_plans_no_steps_and_its_undo_cuts_power():
    plan = ON.plan(outlet("on"))
    assert (plan.steps, plan.takes_down) == ((), LEGS)


def test_power_outlet_on_accepts_an_outlet_that_the_inventory_lacks():
    assert ON.plan(outlet("off", behind=None)).steps[0].title == (
        "Turn on outlet 3 of pdu1 (unknown)"
    )


OFF = TurnOutletOff.model_validate({"host": "pdu1", "outlet": "3"})


def test_power_outlet_off_names_and_takes_down_what_is_behind_it():
    plan = OFF.plan(outlet("on"))
    (step,) = plan.steps
    assert step.title == "Turn off outlet 3 of pdu1 (web1/psu1, switch3)"
    assert (step.do, step.undo) == (SnmpSet((get_sent_line(2),)), SnmpSet((get_sent_line(1),)))
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
    lines = "".join(
        f".{get_sent_line(0).split('.3.3.1')[0]}.3.5.1.1.4.{n} = INTEGER: 1\n" for n in (1, 2)
    )
    entry = build_inventory("pdu1")["pdu1"].model_dump(exclude={"host_key"})
    snmp = {"community_file": "c"}
    more = {"platform": "snmp", "snmp": snmp, "settings": {"power.outlets": "1=web1,db1/psu2"}}
    inventory = type(build_inventory("x")).model_validate({"hosts": {"pdu1": {**entry, **more}}})
    fleet = ScriptedFleet({("pdu1", pdu.query_outlets().command): lines}, inventory=inventory)

    def read(number: str) -> OutletState:
        return OFF.model_copy(update={"outlet": number}).read(fleet.run_query)

    assert read("1").behind == (Leg("web1"), Leg("db1", "psu2"))
    assert read("2").behind is None
    with pytest.raises(Refused, match="no outlet 3: it has 1 to 2"):
        read("3")


CYCLE = CycleOutlet.model_validate({"host": "pdu1", "outlet": "3"})


def test_power_outlet_cycle_has_no_undo_and_takes_down_what_is_behind_it():
    plan = CYCLE.plan(outlet("on"))
    (step,) = plan.steps
    assert step.do == SnmpSet((get_sent_line(3),))
    assert isinstance(step.undo, NoUndo)
    assert step.title == "Cycle outlet 3 of pdu1 (web1/psu1, switch3)"
    assert plan.takes_down == LEGS


def test_power_outlet_cycle_refuses_an_outlet_that_is_off_or_unknown():
    with pytest.raises(Refused, match="request `power outlet on`"):
        CYCLE.plan(outlet("off"))
    with pytest.raises(Refused, match="does not say what is behind"):
        CYCLE.plan(outlet("on", behind=None))


def test_power_outlet_cycle_ends_when_the_outlet_is_on_again():
    off, on = CYCLE.report_progress(outlet("off")), CYCLE.report_progress(outlet("on"))
    assert off is not None
    assert on is not None
    assert (off.running, off.healthy, on.running, on.healthy) == (True, False, False, True)


def test_power_outlet_cycle_is_sent_once_and_verified(tmp_path: Path):
    entry = {
        **{"address": "192.0.2.9", "platform": "snmp", "area": "edge", "tags": ["pdu"]},
        "snmp": {"community_file": "keys/community"},
        "settings": {"power.outlets": "3=lb1"},
    }
    column = TABLES["rPDU of PowerNet-MIB"].state_column
    answer = f".{column}.3 = INTEGER: 1\n"
    with open_harness(tmp_path) as harness:
        inventory = {"hosts": {"pdu1": entry}}
        (harness.policies.path / "inventory.yaml").write_text(json.dumps(inventory))
        known = Inventory.model_validate(inventory)
        fleet = ScriptedFleet({("pdu1", pdu.query_outlets().command): answer}, inventory=known)
        harness.context = replace(harness.context, fleet=fleet, runbooks=load_catalogue())
        harness.service = KeyturnService(harness.context)
        run = harness.request(CYCLE)
        assert run.plan is not None
        assert list(run.plan.takes_down) == ["lb1"]
        # The strip has turned the outlet on again before it is read.
        done = harness.approve(run)
        assert done.state is State.SUCCEEDED
        assert done.summary.startswith("Verified: the strip accepted the cycle")
        assert fleet.sent == [("pdu1", get_sent_line(3))]
