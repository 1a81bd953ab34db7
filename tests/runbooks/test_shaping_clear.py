import pytest
from pydantic import ValidationError

from connectors import shaping
from connectors.shaping import Rates, parse_list
from runbooks import Plan, Refused
from tests.connectors.test_shaping import LIMITED, NONE, SOMEBODYS
from tests.runbooks.declared import load_change
from tests.runbooks.hostile import HOSTILE_NAMES
from tests.scripted_fleet import ScriptedFleet

ClearShaping = load_change("shaping clear")
CLEAR = ClearShaping.model_validate({"host": "web1", "interface": "eth0"})


def test_shaping_clear_removes_limits_and_undo_sets_them():
    (step,) = CLEAR.plan(parse_list(LIMITED)).steps
    assert step.do == shaping.try_limits("eth0", Rates())
    assert step.undo == shaping.try_limits("eth0", Rates(1024, 512))
    assert (step.before, step.after) == ("1,024 kbit/s in, 512 kbit/s out", "no limit")


def test_shaping_clear_without_limits_plans_no_steps():
    assert CLEAR.plan(parse_list(NONE)) == Plan("eth0 has no limit")


def test_shaping_clear_keeps_a_foreign_qdisc():
    plan = CLEAR.plan(parse_list(SOMEBODYS))
    assert not plan.steps
    assert "(tbf) is not changed" in plan.current_state


def test_shaping_clear_refuses_a_missing_interface():
    other = ClearShaping.model_validate({"host": "web1", "interface": "eth7"})
    fleet = ScriptedFleet({("web1", shaping.query_list().command): NONE})
    with pytest.raises(Refused, match="it has lo, eth1, eth0"):
        other.read(fleet.run_query)


def test_shaping_clear_reads_limits_from_the_host():
    fleet = ScriptedFleet({("web1", shaping.query_list().command): LIMITED})
    assert {card.name: card for card in CLEAR.read(fleet.run_query)}["eth0"].rates == Rates(
        1024, 512
    )


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "eth0:1", "eth0@if2", "x" * 16, "."])
def test_shaping_clear_refuses_an_invalid_interface_name(name: object):
    with pytest.raises(ValidationError):
        ClearShaping.model_validate({"host": "web1", "interface": name})
