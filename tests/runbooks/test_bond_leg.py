from collections.abc import Mapping
from dataclasses import replace

import pytest
from pydantic import ValidationError

from connectors import bond_leg
from connectors.bond import parse_bond, parse_links
from connectors.command import Answer, QueryCommand
from connectors.errors import CommandError, ParseError
from connectors.probation import find_armed_change, find_kept_change
from runbooks import Leg, Refused, put_on_probation
from runbooks._lists import LISTS
from runbooks.bond_leg import Legs, ReturnLeg, TakeLeg
from tests.plans import list_work
from tests.runbooks.hostile import HOSTILE_NAMES
from tests.runbooks.network import build_network_fleet, recorded
from tests.runbooks.test_bond_check import LINKS
from tests.scripted_fleet import Replies, ScriptedFleet

VALUES = {"host": "nas1", "bond": "bond0", "leg": "eth1"}
TAKE = TakeLeg.model_validate(VALUES)
RETURN = ReturnLeg.model_validate(VALUES)
FILE = "/proc/net/bonding/bond0"


def host(
    bond: Replies, *, links: str = LINKS, user: str = "root", more: Mapping[str, Replies] = {}
) -> ScriptedFleet:
    answers: dict[tuple[str, str | QueryCommand], Replies] = {
        ("nas1", "ls -1 /proc/net/bonding"): "bond0\n",
        ("nas1", f"cat {FILE}"): bond,
        ("nas1", "ip -j -s link show"): links,
        **{("nas1", words): reply for words, reply in more.items()},
    }
    return build_network_fleet(answers, platforms={"nas1": "linux"}, user=user)


def legs(name: str = "bond-8023ad", *, down: tuple[str, ...] = (), taken: bool = False) -> Legs:
    """Return a recorded bond. down: legs without a link. taken: whether eth1 is set down."""
    bond = parse_bond("bond0", recorded(name))
    members = tuple(
        replace(member, link_state="down") if member.name in down else member
        for member in bond.members
    )
    links = dict(parse_links(LINKS))
    links["eth1"] = replace(links["eth1"], is_enabled=not taken)
    return Legs(replace(bond, members=members), links)


def test_bond_leg_is_taken_down_on_probation_and_undo_returns_it():
    plan = put_on_probation(TAKE, TAKE.plan(TAKE.read(host(recorded("bond-8023ad")).run_query)))
    arm, take, keep = plan.steps
    assert find_armed_change(arm.do) == find_kept_change(keep.do) is not None
    assert take.do == bond_leg.set_leg("bond0", "eth1", "down")
    assert take.undo == bond_leg.set_leg("bond0", "eth1", "up")
    assert (take.before, take.after) == ("set up", "set down")
    assert plan.notes[0] == "Left to carry the traffic of bond0: eth0, eth2, eth3."
    assert TAKE.takes_down() == [Leg("nas1", "eth1")]


def test_bond_leg_that_is_down_is_returned_and_not_taken_again():
    taken = legs(down=("eth1",), taken=True)
    assert TAKE.plan(taken).current_state == "eth1 of bond0 is set down, and its link is down"
    assert TAKE.plan(taken).steps == ()
    (step,) = RETURN.plan(taken).steps
    assert step.do == bond_leg.set_leg("bond0", "eth1", "up")
    assert RETURN.plan(legs()).steps == ()
    assert RETURN.takes_down() == ()


@pytest.mark.parametrize(
    ("name", "down"),
    [
        ("bond-8023ad", ("eth0", "eth2", "eth3")),
        ("bond-rr", ("eth0", "eth2", "eth3")),
        ("bond-backup", ("eth0", "eth2", "eth3")),
    ],
)
def test_last_bond_leg_is_not_taken_and_its_return_is_not_undone(name: str, down: tuple[str, ...]):
    last = legs(name, down=down)
    with pytest.raises(Refused, match=r"eth1 is the last leg of bond0: .* Repair eth0"):
        TAKE.plan(last)
    with pytest.raises(Refused, match="eth1 is the last leg"):
        RETURN.refuse_undo(last)
    RETURN.refuse_undo(legs(name))


def test_bond_leg_outside_the_lacp_aggregation_does_not_count_as_redundant():
    state = legs(down=("eth2", "eth3"))
    assert TAKE.plan(state).steps
    first, *rest = state.bond.members
    for other in (replace(first, aggregator=2), replace(first, partner_state=7)):
        with pytest.raises(Refused, match="last leg"):
            TAKE.plan(Legs(replace(state.bond, members=(other, *rest)), state.links))


def test_bond_leg_plan_is_refused_when_the_other_legs_failed_meanwhile():
    """The state is read again before the first step is sent."""
    cut_off = recorded("bond-8023ad")
    for leg in ("eth0", "eth2", "eth3"):
        head, name, rest = cut_off.partition(f"Slave Interface: {leg}\n")
        cut_off = head + name + rest.replace("MII Status: up", "MII Status: down", 1)
    changing = host([recorded("bond-8023ad"), cut_off])
    assert TAKE.plan(TAKE.read(changing.run_query)).steps
    with pytest.raises(Refused, match="last leg"):
        TAKE.plan(TAKE.read(changing.run_query))


def test_bond_leg_of_an_unmonitored_bond_is_refused():
    state = legs()
    with pytest.raises(Refused, match="set miimon=100 first"):
        TAKE.plan(Legs(replace(state.bond, is_monitored=False), state.links))


def test_bond_leg_plan_is_not_stale_when_only_counters_move():
    before, after = legs(), legs()
    first, second, *rest = after.bond.members
    moved = (first, replace(second, failure_count=7), *rest)
    after = Legs(replace(after.bond, members=moved), after.links)
    assert list_work(TAKE.plan(before)) == list_work(TAKE.plan(after))


def test_bond_leg_reads_lacp_as_root_or_fails():
    hidden = recorded("bond-8023ad-not-root")
    as_root = {f"sudo -n -- cat {FILE}": recorded("bond-8023ad")}
    sees = host(hidden, user="keyturn", more=as_root)
    assert TAKE.read(sees.run_query).bond.port_count == 4
    refused = {f"sudo -n -- cat {FILE}": Answer(1, "", "sudo: unknown user")}
    with pytest.raises(CommandError, match="unknown user"):
        TAKE.read(host(hidden, user="keyturn", more=refused).run_query)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"bond": "bond1"}, "nas1 has no bond1: it has bond0"),
        ({"leg": "eth7"}, "eth7 is no member of bond0: eth0, eth1, eth2, eth3"),
    ],
)
def test_missing_bond_or_bond_leg_is_refused(values: dict[str, str], why: str):
    take = TakeLeg.model_validate(VALUES | values)
    with pytest.raises(Refused, match=why):
        take.plan(take.read(host(recorded("bond-8023ad")).run_query))


def test_bond_leg_that_ip_does_not_list_is_a_parse_error():
    with pytest.raises(ParseError, match="ip does not list it"):
        TAKE.plan(Legs(legs().bond, {}))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("field", ["bond", "leg"])
def test_invalid_card_name_is_refused(field: str, name: object):
    with pytest.raises(ValidationError):
        TakeLeg.model_validate(VALUES | {field: name})


def test_bond_leg_form_offers_the_members_of_the_bond():
    members = LISTS["bond members"](
        host(recorded("bond-8023ad")).run_query, "nas1", {"bond": "bond0"}
    )
    assert list(members) == ["eth0", "eth1", "eth2", "eth3"]
