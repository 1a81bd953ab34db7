import pytest
from pydantic import ValidationError

from connectors import shaping
from connectors.shaping import Rates, parse_interfaces
from runbooks import Plan, Refused
from runbooks.shaping_clear import ClearShaping
from tests.connectors.test_shaping import LIMITED, NONE, SOMEBODYS
from tests.runbooks.hostile import HOSTILE_NAMES
from tests.scripted_fleet import ScriptedFleet

CLEAR = ClearShaping.model_validate({"host": "web1", "interface": "eth0"})


def test_limits_are_taken_away_and_can_be_set_again():
    (step,) = CLEAR.plan(parse_interfaces(LIMITED)).steps
    assert step.do == shaping.try_limits("eth0", Rates())
    assert step.undo == shaping.try_limits("eth0", Rates(1024, 512))
    assert (step.before, step.after) == ("1,024 kbit/s in, 512 kbit/s out", "no limit")


def test_an_interface_without_limits_needs_nothing():
    assert CLEAR.plan(parse_interfaces(NONE)) == Plan("eth0 has no limit")


def test_what_someone_else_has_set_up_is_left_alone():
    plan = CLEAR.plan(parse_interfaces(SOMEBODYS))
    assert not plan.steps
    assert "(tbf) is not changed" in plan.current_state


def test_an_interface_that_is_not_there_is_refused():
    other = ClearShaping.model_validate({"host": "web1", "interface": "eth7"})
    with pytest.raises(Refused, match="it has lo, eth1, eth0"):
        other.plan(parse_interfaces(NONE))


def test_it_is_read_from_the_host():
    fleet = ScriptedFleet({("web1", shaping.query_interfaces().command): LIMITED})
    assert CLEAR.read(fleet.run_query)["eth0"].rates == Rates(1024, 512)


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "eth0:1", "eth0@if2", "x" * 16, "."])
def test_invalid_interface_name_is_refused(name: object):
    with pytest.raises(ValidationError):
        ClearShaping.model_validate({"host": "web1", "interface": name})
