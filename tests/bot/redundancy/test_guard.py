"""The redundancy guard refuses exactly what its rule says, and allows every repair."""

import random

import pytest

from bot.redundancy import guard
from bot.redundancy.analysis import TreeAnalysis
from bot.redundancy.fault_tree import FaultTree, build_pair
from bot.redundancy.guard import TreeState
from tests.bot.redundancy import random_trees

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


def test_guard_refuses_a_change_of_both_legs():
    assert guard.decide(PAIR, TreeState(), ["lb1", "lb2"]).is_refused


def test_guard_allows_a_single_point_of_failure_with_no_margin_left():
    alone = TreeAnalysis(build_pair(["nas1"]))
    decision = guard.decide(alone, TreeState(), ["nas1"])
    assert not decision.is_refused
    assert (decision.margin_before, decision.margin_after) == (1, 0)


CutSets = set[frozenset[str]]


def apply_rule(tree: FaultTree, minimal: CutSets, state: TreeState, takes: frozenset[str]) -> bool:
    """Return whether the rule refuses, applied literally to every minimal cut set."""
    newly = takes - state.failed
    after = state.failed | state.unknown | state.claimed | takes
    if random_trees.is_down(tree, state.failed):
        return False
    return any(len(cut_set) > 1 and cut_set <= after and cut_set & newly for cut_set in minimal)


def measure_margin(minimal: CutSets, down: frozenset[str]) -> int | None:
    return min((len(cut_set - down) for cut_set in minimal), default=None)


@pytest.mark.parametrize("block", range(10))
def test_guard_agrees_with_the_rule_applied_literally(block: int):
    refused = 0
    for seed in range(block * 300, block * 300 + 300):
        chance = random.Random(seed)  # noqa: S311 - trees, not secrets
        tree = random_trees.build_random_tree(seed, max_events=6, max_gates=5)
        names = [event.name for event in tree.list_events()]

        def draw(names: list[str] = names, chance: random.Random = chance) -> frozenset[str]:
            return frozenset(name for name in names if chance.random() < 0.3)

        state, takes = TreeState(draw(), draw(), draw()), draw()
        analysis, minimal = TreeAnalysis(tree), random_trees.find_minimal_cut_sets(tree)
        decision = guard.decide(analysis, state, sorted(takes))
        assert decision.is_refused == apply_rule(tree, minimal, state, takes), seed
        refused += decision.is_refused
        assert decision.margin_before == measure_margin(minimal, state.down), seed
        assert decision.margin_after == measure_margin(minimal, state.down | takes), seed
        nearest = frozenset(analysis.find_nearest_cut_set(state.down | takes))
        if decision.margin_after is not None:
            assert nearest in minimal, seed
            assert len(nearest - state.down - takes) == decision.margin_after, seed
        if decision.is_refused:
            assert frozenset(decision.cut_set) in minimal
    assert refused > 15


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
