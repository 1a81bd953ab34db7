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
from runbooks import NoUndo, Refused, load_catalogue
from runbooks.power_outlet_cycle import CycleOutlet
from tests.bot.harness import open_harness
from tests.runbooks.power import LEGS, outlet, sent
from tests.scripted_fleet import ScriptedFleet

CYCLE = CycleOutlet.model_validate({"host": "pdu1", "outlet": "3"})


def test_power_outlet_cycle_has_no_undo_and_takes_down_what_is_behind_it():
    plan = CYCLE.plan(outlet("on"))
    (step,) = plan.steps
    assert step.do == SnmpSet((sent(3),))
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
        assert fleet.sent == [("pdu1", sent(3))]
