"""The count of approvals, compared with brute force."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from bot.model.approvals import ApprovalDemand, ApprovalRequirements

GROUPS = ("area:edge", "role:security", "role:network")
_places = st.lists(
    st.lists(st.sampled_from(GROUPS), min_size=1, max_size=2).map(tuple), max_size=3
)
_people = st.dictionaries(
    st.sampled_from("abcde"), st.frozensets(st.sampled_from(GROUPS)), max_size=5
)


def _is_met_by_brute_force(demand: ApprovalDemand, people: dict[str, frozenset[str]]) -> bool:
    """Say whether some way to stand fills every place, and enough people are wanted at all."""
    wanted = [
        one for one in people if any(set(place) & people[one] for place in demand.group_sets)
    ]
    return len(wanted) >= demand.required_approvals and any(
        all(set(place) & people[one] for place, one in zip(demand.group_sets, row, strict=True))
        for row in permutations(people, len(demand.group_sets))
    )


@given(_places, st.integers(0, 4), _people)
def test_approvals_suffice_exactly_when_brute_force_finds_an_assignment(
    each: list[tuple[str, ...]], approvals: int, people: dict[str, frozenset[str]]
):
    demand = ApprovalDemand(approvals, tuple(each))
    assert (demand.count_missing(people) == 0) is _is_met_by_brute_force(demand, people)


@given(_places, _places, _people)
def test_merged_approval_requirements_are_at_least_as_strict_as_each(
    some: list[tuple[str, ...]], more: list[tuple[str, ...]], people: dict[str, frozenset[str]]
):
    one, other = (
        ApprovalRequirements((ApprovalDemand(len(each), tuple(each)),)) for each in (some, more)
    )
    both = one.merge_with(other)
    assert both.count_missing(people) >= max(
        one.count_missing(people), other.count_missing(people)
    )
    if both.count_missing(people) == 0:
        assert one.count_missing(people) == other.count_missing(people) == 0


def test_escalation_adds_approvers_and_keeps_the_number_of_approvals():
    terms = ApprovalRequirements(
        (ApprovalDemand(2, (("area:edge",), ("role:security",))),), escalate_to=("role:network",)
    )
    people = {"a": ["area:edge"], "b": ["role:network"]}
    assert terms.count_missing(people) == 1
    assert terms.escalate_requirements().count_missing(people) == 0
    assert terms.escalate_requirements().count_missing({"a": ["area:edge"]}) == 1
