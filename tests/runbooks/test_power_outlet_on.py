from connectors.command import SnmpSet
from runbooks.power_outlet_on import TurnOutletOn
from tests.runbooks.power import LEGS, outlet, sent

ON = TurnOutletOn.model_validate({"host": "pdu1", "outlet": "3"})


def test_power_outlet_on_takes_nothing_down():
    plan = ON.plan(outlet("off"))
    (step,) = plan.steps
    assert (step.do, step.undo) == (SnmpSet((sent(1),)), SnmpSet((sent(2),)))
    assert step.title == "Turn on outlet 3 of pdu1 (web1/psu1, switch3)"
    assert plan.takes_down == ()


def test_power_outlet_that_is_on_plans_no_steps_and_its_undo_cuts_power():
    plan = ON.plan(outlet("on"))
    assert (plan.steps, plan.takes_down) == ((), LEGS)


def test_power_outlet_on_accepts_an_outlet_that_the_inventory_lacks():
    assert ON.plan(outlet("off", behind=None)).steps[0].title == (
        "Turn on outlet 3 of pdu1 (unknown)"
    )
