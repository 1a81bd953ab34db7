from typing import Any

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.hostile_values import HOSTILE_ADDRESSES
from connectors import shaping, tcp_window
from connectors.command import Shell
from connectors.probation import find_armed_change, find_kept_change
from connectors.shaping import QueueingDiscipline, Rates, ShapedInterface, parse_interfaces
from runbooks import NoUndo, Plan, Refused, put_on_probation
from runbooks.shaping_set import SetShaping, ShapingState
from tests.connectors.test_shaping import LIMITED, NONE, SOMEBODYS
from tests.plans import list_work
from tests.runbooks.hostile import HOSTILE_NAMES
from tests.scripted_fleet import ScriptedFleet

PEER = "198.51.100.7"


def make_request(**fields: Any) -> SetShaping:
    return SetShaping.model_validate({"host": "web1", "interface": "eth0", **fields})


def make_state(answer: str, seconds: float | None = None) -> ShapingState:
    return ShapingState(parse_interfaces(answer), seconds)


SET = make_request(down=1024, up="512")


def test_bandwidth_limits_are_set_on_probation_and_kept_over_a_new_connection():
    arm, limit, keep = put_on_probation(SET, SET.plan(make_state(NONE))).steps
    assert [find_armed_change(each.do) is not None for each in (arm, keep)] == [True, False]
    assert limit.do == shaping.try_limits("eth0", Rates(1024, 512))
    assert find_kept_change(keep.do) == find_armed_change(arm.do)
    assert isinstance(keep.do, Shell)
    assert keep.do.new_connection
    assert (limit.before, limit.after) == ("no limit", "1,024 kbit/s in, 512 kbit/s out")


def test_undo_of_bandwidth_limits_runs_on_probation_too():
    arm, limit, keep = put_on_probation(SET, SET.plan(make_state(NONE))).steps
    assert not isinstance(keep.undo, NoUndo)
    assert not isinstance(arm.undo, NoUndo)
    assert find_armed_change(keep.undo) == find_kept_change(arm.undo)
    assert limit.undo == shaping.try_limits("eth0", Rates())
    assert (keep.undo_title, arm.undo_title) == (arm.title, keep.title)


def test_bandwidth_limit_of_the_other_direction_is_kept():
    plan = make_request(up=600).plan(make_state(LIMITED))
    assert plan.steps[0].do == shaping.try_limits("eth0", Rates(1024, 600))


def test_bandwidth_limits_that_are_as_requested_plan_no_steps():
    expected = Plan("eth0 is limited to 1,024 kbit/s in, 512 kbit/s out")
    assert SET.plan(make_state(LIMITED)) == expected


@pytest.mark.parametrize(
    ("answer", "seconds", "note"),
    [
        (NONE, 0.0123, f"{PEER} is 12.3 ms away now."),
        (NONE, None, f"{PEER} does not answer pings now."),
    ],
)
def test_shaping_set_notes_the_round_trip_to_a_peer_before(
    answer: str, seconds: float | None, note: str
):
    assert (
        make_request(down=1024, up=512, peer=PEER).plan(make_state(answer, seconds)).notes[0]
        == note
    )


def test_shaping_set_shows_the_round_trip_to_a_peer_once_verified():
    proof = make_request(down=1024, up=512, peer=PEER).plan(make_state(LIMITED, 0.05))
    assert proof.steps == ()
    assert proof.current_state == (
        f"eth0 is limited to 1,024 kbit/s in, 512 kbit/s out; {PEER} is 50.0 ms away now"
    )


def test_shaping_plan_is_not_stale_when_latency_and_counters_move():
    moved = LIMITED.replace('"drops":79', '"drops":99')
    peer = make_request(up=600, peer=PEER)
    assert list_work(peer.plan(make_state(moved, 0.2))) == list_work(
        peer.plan(make_state(LIMITED, 0.1))
    )


def test_shaping_plan_is_stale_when_limits_changed():
    before, after = (
        make_request(up=600).plan(make_state(NONE)),
        make_request(up=600).plan(make_state(LIMITED)),
    )
    assert list_work(before) != list_work(after)


@pytest.mark.parametrize(
    ("fields", "answer", "why"),
    [
        ({}, NONE, "no limit is given: set down=, up= or both"),
        ({"interface": "lo", "up": 512}, NONE, "the loopback interface"),
        ({"interface": "eth7", "up": 512}, NONE, "no interface eth7: it has eth1, eth0"),
        ({"interface": "kt-in3", "up": 512}, LIMITED, "no interface kt-in3"),
        ({"up": 512}, SOMEBODYS, r"has a queue \(tbf\) from another program"),
        ({"interface": "eth1", "down": 512}, SOMEBODYS, r"a queue \(htb, ingress\)"),
    ],
)
def test_shaping_set_refuses_an_interface_that_cannot_be_limited(
    fields: dict[str, Any], answer: str, why: str
):
    with pytest.raises(Refused, match=why):
        make_request(**fields).plan(make_state(answer))


def test_shaping_set_shows_the_previous_limit_of_one_direction():
    cards = {
        "eth0": ShapedInterface(
            "eth0", is_loopback=False, up_queue=QueueingDiscipline("tbf", 700, 0, 0)
        )
    }
    assert SET.plan(ShapingState(cards, None)).steps[0].before == "700 kbit/s out"


def test_shaping_set_pings_a_peer_only_when_given():
    ping = tcp_window.query_round_trip(PEER).command
    answer = "rtt min/avg/max/mdev = 12.300/12.400/12.500/0.1 ms\n"
    fleet = ScriptedFleet(
        {("web1", shaping.query_interfaces().command): NONE, ("web1", ping): answer}
    )
    assert SET.read(fleet.run_query).round_trip is None
    assert len(fleet.asked) == 1
    assert make_request(up=512, peer=PEER).read(fleet.run_query).round_trip == pytest.approx(
        0.0123
    )


@pytest.mark.parametrize("field", ["down", "up"])
@pytest.mark.parametrize(
    "rate",
    [
        *(0, 1, 255, -512, 10_000_001, 512.5, "-x", "1mbit", "512; id", "512\n512", "$(id)"),
        *("0x200", "5 12", "1e6", "many", [512], "５１２k"),
    ],
)
def test_shaping_set_refuses_an_invalid_rate_before_any_query(field: str, rate: object):
    with pytest.raises(ValidationError):
        make_request(**{field: rate})


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "eth0:1", "eth0@if2", "x" * 16, "."])
def test_shaping_set_refuses_an_invalid_interface_name(name: object):
    with pytest.raises(ValidationError):
        make_request(interface=name, up=512)


@pytest.mark.parametrize("peer", [each for each in HOSTILE_ADDRESSES if each is not None])
def test_shaping_set_refuses_an_invalid_peer_address(peer: object):
    with pytest.raises(ValidationError):
        make_request(peer=peer, up=512)
