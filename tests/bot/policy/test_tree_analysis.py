"""Fault tree analysis, compared with published examples and brute force."""

import math
import time

import pytest

from bot.policy.fault_tree import Event, FaultTree, Gate, TreeError
from bot.policy.tree_analysis import MAX_EVENTS, TreeAnalysis
from tests.bot.policy import random_trees


def build_tree(top: str, gates: list[Gate], *events: str) -> FaultTree:
    return FaultTree(
        "tree", top, {gate.name: gate for gate in gates}, {name: Event(name) for name in events}
    )


def list_cut_sets(tree: FaultTree) -> set[frozenset[str]]:
    return {frozenset(names) for names in TreeAnalysis(tree).iterate_cut_sets()}


def compute_probability(tree: FaultTree, **probabilities: float) -> float:
    """Return the probability of the top event that follows from the minimal cut sets."""
    return random_trees.compute_probability(list_cut_sets(tree), probabilities)


# The pressure tank of the Fault Tree Handbook, NUREG-0492, chapter VIII.
TANK = {"T": 5e-6, "K2": 3e-5, "S": 1e-4, "S1": 3e-5, "K1": 3e-5, "R": 1e-4}
PRESSURE_TANK = build_tree(
    "rupture",
    [
        Gate("rupture", "any", ("T", "K2", "pump-runs")),
        Gate("pump-runs", "all", ("S", "circuit")),
        Gate("circuit", "any", ("S1", "K1", "R")),
    ],
    *TANK,
)


def test_pressure_tank_has_the_published_cut_sets_and_probability():
    analysis = TreeAnalysis(PRESSURE_TANK)
    assert list_cut_sets(PRESSURE_TANK) == {
        frozenset(names) for names in (["T"], ["K2"], ["S", "S1"], ["S", "K1"], ["S", "R"])
    }
    assert analysis.single_points == ["T", "K2"]
    assert analysis.cut_sets.count_by_order() == {1: 2, 2: 3}
    rare_event_sum = sum(
        math.prod(TANK[name] for name in names) for names in analysis.iterate_cut_sets()
    )
    assert rare_event_sum == pytest.approx(3.5016e-5, rel=1e-12)
    assert compute_probability(PRESSURE_TANK, **TANK) == pytest.approx(3.501584875e-5, rel=1e-9)


@pytest.mark.parametrize(
    ("probabilities", "published"),
    [
        ({"P1": 0.7, "P2": 0.7, "V1": 0.5, "V2": 0.5}, 0.7225),
        ({"P1": 0.6, "P2": 0.7, "V1": 0.4, "V2": 0.5}, 0.646),
    ],
)
def test_two_trains_have_the_published_probability(
    probabilities: dict[str, float], published: float
):
    gates = [
        Gate("top", "all", ("train1", "train2")),
        Gate("train1", "any", ("V1", "P1")),
        Gate("train2", "any", ("V2", "P2")),
    ]
    tree = build_tree("top", gates, *probabilities)
    assert len(list_cut_sets(tree)) == 4
    assert compute_probability(tree, **probabilities) == pytest.approx(published)


def test_raid5_of_four_disks_is_lost_with_two_of_them():
    disks = {f"disk{n}": 0.03 for n in range(4)}
    tree = build_tree("lost", [Gate("lost", "at-least", (*disks,), 2)], *disks)
    assert TreeAnalysis(tree).cut_sets.count_by_order() == {2: 6}
    assert compute_probability(tree, **disks) == pytest.approx(0.00518643, rel=1e-6)


# --- against brute force ---


@pytest.mark.parametrize("block", range(10))
def test_random_fault_trees_agree_with_brute_force(block: int):
    for seed in range(block * 100, block * 100 + 100):
        tree = random_trees.build_random_tree(seed)
        analysis = TreeAnalysis(tree)
        minimal = random_trees.find_minimal_cut_sets(tree)
        computed = [frozenset(names) for names in analysis.iterate_cut_sets()]
        assert set(computed) == minimal, seed
        assert len(computed) == len(minimal) == sum(analysis.cut_sets.count_by_order().values())


@pytest.mark.parametrize("seed", range(20))
def test_random_fault_trees_of_twelve_events_agree_with_brute_force(seed: int):
    tree = random_trees.build_random_tree(seed, max_events=12, max_gates=14)
    assert list_cut_sets(tree) == random_trees.find_minimal_cut_sets(tree)


# --- house events, and limits ---


def test_house_event_that_is_set_has_happened_for_certain():
    gates = {"top": Gate("top", "all", ("maintenance", "lb2"))}
    events = {"lb2": Event("lb2")}
    tree = FaultTree("tree", "top", gates, events, house={"maintenance": True})
    assert list_cut_sets(tree) == {frozenset({"lb2"})}
    off = FaultTree("tree", "top", gates, events, house={"maintenance": False})
    assert list_cut_sets(off) == set()
    assert TreeAnalysis(off).get_margin([]) is None


def test_fault_tree_of_300_events_is_analysed_within_five_cpu_seconds():
    trains = [Gate(f"train{n}", "any", tuple(f"e{n}x{m}" for m in range(3))) for n in range(100)]
    top = Gate("top", "at-least", tuple(gate.name for gate in trains), 3)
    events = [name for gate in trains for name in gate.inputs]
    began = time.process_time()
    analysis = TreeAnalysis(build_tree("top", [top, *trains], *events))
    assert analysis.cut_sets.count_by_order() == {3: 27 * math.comb(100, 3)}
    # A ceiling against an algorithm that explodes, far above the tenth of a second that it takes.
    assert time.process_time() - began < 5


def test_fault_tree_above_the_limits_is_refused():
    names = [f"e{n}" for n in range(MAX_EVENTS + 1)]
    large = build_tree("top", [Gate("top", "any", (*names,))], *names)
    with pytest.raises(TreeError, match=f"has {MAX_EVENTS + 1} events and at most {MAX_EVENTS}"):
        TreeAnalysis(large)
    disks = [f"d{n}" for n in range(60)]
    wide = build_tree("top", [Gate("top", "at-least", (*disks,), 30)], *disks)
    with pytest.raises(TreeError, match="needs more than 100 nodes: split it"):
        TreeAnalysis(wide, max_nodes=100)
