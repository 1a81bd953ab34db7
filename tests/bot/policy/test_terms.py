"""What approvals must come to, held against counting by trying every way."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from bot.model.approvals import ApprovalRequirements, Demand

GROUPS = ("area:edge", "role:security", "role:network")
_places = st.lists(
    st.lists(st.sampled_from(GROUPS), min_size=1, max_size=2).map(tuple), max_size=3
)
_people = st.dictionaries(
    st.sampled_from("abcde"), st.frozensets(st.sampled_from(GROUPS)), max_size=5
)


def _met_by_trying(demand: Demand, people: dict[str, frozenset[str]]) -> bool:
    """Say whether some way to stand fills every place, and enough people are wanted at all."""
    wanted = [one for one in people if any(set(place) & people[one] for place in demand.each)]
    return len(wanted) >= demand.approvals and any(
        all(set(place) & people[one] for place, one in zip(demand.each, row, strict=True))
        for row in permutations(people, len(demand.each))
    )


@given(_places, st.integers(0, 4), _people)
def test_a_demand_is_met_if_and_only_if_there_is_a_way_to_meet_it(
    each: list[tuple[str, ...]], approvals: int, people: dict[str, frozenset[str]]
):
    demand = Demand(approvals, tuple(each))
    assert (demand.missing(people) == 0) is _met_by_trying(demand, people)


@given(_places, _places, _people)
def test_and_also_weakens_nothing(
    some: list[tuple[str, ...]], more: list[tuple[str, ...]], people: dict[str, frozenset[str]]
):
    one, other = (ApprovalRequirements((Demand(len(each), tuple(each)),)) for each in (some, more))
    both = one.and_also(other)
    assert both.missing(people) >= max(one.missing(people), other.missing(people))
    if both.missing(people) == 0:
        assert one.missing(people) == other.missing(people) == 0


def test_escalation_lets_others_fill_a_place_and_asks_for_no_fewer():
    terms = ApprovalRequirements(
        (Demand(2, (("area:edge",), ("role:security",))),), escalate=("role:network",)
    )
    people = {"a": ["area:edge"], "b": ["role:network"]}
    assert terms.missing(people) == 1
    assert terms.escalated().missing(people) == 0
    assert terms.escalated().missing({"a": ["area:edge"]}) == 1
