"""The redundancy guard refuses exactly what its rule says, and allows every repair."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.features.redundancy import guard
from bot.features.redundancy.guard import TreeState
from bot.policy.fault_tree import Event, FaultTree, Gate, build_pair
from bot.policy.tree_analysis import TreeAnalysis
from tests.bot.policy import random_trees

PAIR = TreeAnalysis(build_pair(["lb1", "lb2"]))


def test_guard_refuses_the_last_leg_with_its_cut_set():
    decision = guard.decide(PAIR, TreeState(failed=frozenset({"lb2"})), ["lb1"])
    assert decision.is_refused
    assert decision.cut_set == ("lb1", "lb2")
    assert (decision.margin_before, decision.margin_after) == (1, 0)


def test_guard_allows_one_leg_of_two():
    decision = guard.decide(PAIR, TreeState(), ["lb1"])
    assert not decision.is_refused
    assert (decision.margin_before, decision.margin_after) == (2, 1)


def test_guard_counts_a_leg_claimed_by_another_run_as_down():
    assert guard.decide(PAIR, TreeState(claimed=frozenset({"lb2"})), ["lb1"]).is_refused


def test_guard_counts_a_leg_of_unknown_state_as_down():
    assert guard.decide(PAIR, TreeState(unknown=frozenset({"lb2"})), ["lb1"]).is_refused


def test_guard_allows_a_change_of_a_leg_that_is_down():
    state = TreeState(failed=frozenset({"lb1"}), unknown=frozenset({"lb2"}))
    assert not guard.decide(PAIR, state, ["lb1"]).is_refused


def test_guard_allows_the_repair_of_a_service_that_is_down():
    state = TreeState(failed=frozenset({"lb1", "lb2"}))
    assert not guard.decide(PAIR, state, ["lb1", "lb2"]).is_refused


def test_guard_refuses_the_leg_that_still_stands_of_a_service_that_is_down():
    disks = Gate("lost", "at-least", ("d1", "d2", "d3"), 2)
    events = {name: Event(name) for name in disks.inputs}
    analysis = TreeAnalysis(FaultTree("array", "lost", {"lost": disks}, events))
    state = TreeState(failed=frozenset({"d1", "d2"}))
    assert guard.decide(analysis, state, ["d3"]).is_refused
    assert guard.decide(analysis, state, ["d2", "d3"]).is_refused
    assert not guard.decide(analysis, state, ["d1", "d2"]).is_refused


def test_guard_allows_a_leg_of_a_pair_while_another_part_of_the_service_is_down():
    gates = {
        "shop": Gate("shop", "any", ("balancers", "storage")),
        "balancers": Gate("balancers", "all", ("lb1", "lb2")),
    }
    events = {name: Event(name) for name in ("lb1", "lb2", "storage")}
    analysis = TreeAnalysis(FaultTree("shop", "shop", gates, events))
    state = TreeState(failed=frozenset({"storage"}))
    assert not guard.decide(analysis, state, ["lb1"]).is_refused
    assert guard.decide(analysis, state, ["lb1", "lb2"]).is_refused


def test_guard_refuses_a_change_of_both_legs():
    assert guard.decide(PAIR, TreeState(), ["lb1", "lb2"]).is_refused


def test_guard_allows_a_single_point_of_failure_with_no_margin_left():
    alone = TreeAnalysis(build_pair(["nas1"]))
    decision = guard.decide(alone, TreeState(), ["nas1"])
    assert not decision.is_refused
    assert (decision.margin_before, decision.margin_after) == (1, 0)


CutSets = set[frozenset[str]]


@st.composite
def draw_cases(draw: st.DrawFn) -> tuple[FaultTree, TreeState, frozenset[str]]:
    """Draw a tree, the state of its events, and the events that a change takes."""
    tree = random_trees.build_random_tree(
        draw(st.integers(0, 1_000_000)), max_events=6, max_gates=5
    )
    names = [event.name for event in tree.list_events()]
    events = st.frozensets(st.sampled_from(names))
    state = TreeState(draw(events), draw(events), draw(events))
    return tree, state, draw(st.frozensets(st.sampled_from(names), min_size=1))


def apply_rule(minimal: CutSets, state: TreeState, takes: frozenset[str]) -> bool:
    """Return whether the rule refuses, applied literally to every minimal cut set."""
    newly = takes - state.failed
    after = state.failed | state.unknown | state.claimed | takes
    return any(len(cut_set) > 1 and cut_set <= after and cut_set & newly for cut_set in minimal)


def measure_margin(minimal: CutSets, down: frozenset[str]) -> int | None:
    return min((len(cut_set - down) for cut_set in minimal), default=None)


@given(draw_cases())
def test_guard_agrees_with_the_rule_applied_literally(
    case: tuple[FaultTree, TreeState, frozenset[str]],
):
    tree, state, takes = case
    analysis, minimal = TreeAnalysis(tree), random_trees.find_minimal_cut_sets(tree)
    decision = guard.decide(analysis, state, sorted(takes))
    assert decision.is_refused == apply_rule(minimal, state, takes)
    assert decision.margin_before == measure_margin(minimal, state.down)
    assert decision.margin_after == measure_margin(minimal, state.down | takes)
    nearest = frozenset(analysis.find_nearest_cut_set(state.down | takes))
    if decision.margin_after is not None:
        assert nearest in minimal
        assert len(nearest - state.down - takes) == decision.margin_after
    if decision.is_refused:
        assert frozenset(decision.cut_set) in minimal


@given(draw_cases())
def test_guard_never_lets_a_change_take_down_a_service_that_stands(
    case: tuple[FaultTree, TreeState, frozenset[str]],
):
    """The promise itself, evaluated gate by gate: only a single point of failure may do that."""
    tree, state, takes = case
    analysis = TreeAnalysis(tree)
    if guard.decide(analysis, state, sorted(takes)).is_refused:
        return
    singles = {name for name in takes if random_trees.is_down(tree, {name})}
    before = random_trees.is_down(tree, state.down)
    after = random_trees.is_down(tree, state.down | takes)
    assert before or not after or singles - state.failed


@given(draw_cases(), st.data())
def test_guard_refuses_as_well_when_more_is_down(
    case: tuple[FaultTree, TreeState, frozenset[str]], data: st.DataObject
):
    """Nothing that fails elsewhere makes a leg that stands free to take."""
    tree, state, takes = case
    analysis = TreeAnalysis(tree)
    if not guard.decide(analysis, state, sorted(takes)).is_refused:
        return
    others = [event.name for event in tree.list_events() if event.name not in takes]
    more = data.draw(st.frozensets(st.sampled_from(others))) if others else frozenset[str]()
    worse = replace(state, failed=state.failed | more)
    assert guard.decide(analysis, worse, sorted(takes)).is_refused


@given(draw_cases())
def test_guard_allows_every_change_of_what_is_down_already(
    case: tuple[FaultTree, TreeState, frozenset[str]],
):
    tree, state, takes = case
    down = replace(state, failed=state.failed | takes)
    assert not guard.decide(TreeAnalysis(tree), down, sorted(takes)).is_refused


@pytest.mark.parametrize("seed", range(200))
def test_guard_refuses_every_leg_of_a_cut_set_while_all_states_are_unknown(seed: int):
    tree = random_trees.build_random_tree(seed)
    state = TreeState(unknown=frozenset(event.name for event in tree.list_events()))
    analysis = TreeAnalysis(tree)
    for cut_set in random_trees.find_minimal_cut_sets(tree):
        for name in cut_set if len(cut_set) > 1 else ():
            assert guard.decide(analysis, state, [name]).is_refused


def test_guard_comparing_before_and_after_would_allow_the_last_leg_when_all_is_unknown():
    """With everything unknown the tree is true before, so such a rule allows the last leg."""
    tree = build_pair(["lb1", "lb2"])
    before = random_trees.is_down(tree, {"lb1", "lb2"})
    after = random_trees.is_down(tree, {"lb1", "lb2"})
    assert not (after and not before)
    state = TreeState(unknown=frozenset({"lb1", "lb2"}))
    assert guard.decide(PAIR, state, ["lb1"]).is_refused
