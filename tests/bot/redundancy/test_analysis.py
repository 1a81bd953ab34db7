"""Fault tree analysis, compared with published examples and brute force."""

import math
import time

import pytest

from bot.redundancy.analysis import MAX_EVENTS, TreeAnalysis
from bot.redundancy.fault_tree import Event, FaultTree, Gate, TreeError, build_pair
from tests.bot.redundancy import random_trees


def build_tree(top: str, gates: list[Gate], **probabilities: float) -> FaultTree:
    events = {name: Event(name, probability=p) for name, p in probabilities.items()}
    return FaultTree("tree", top, {gate.name: gate for gate in gates}, events)


def list_cut_sets(tree: FaultTree) -> set[frozenset[str]]:
    return {frozenset(names) for names in TreeAnalysis(tree).iterate_cut_sets()}


# The pressure tank of the Fault Tree Handbook, NUREG-0492, chapter VIII.
PRESSURE_TANK = build_tree(
    "rupture",
    [
        Gate("rupture", "any", ("T", "K2", "pump-runs")),
        Gate("pump-runs", "all", ("S", "circuit")),
        Gate("circuit", "any", ("S1", "K1", "R")),
    ],
    T=5e-6,
    K2=3e-5,
    S=1e-4,
    S1=3e-5,
    K1=3e-5,
    R=1e-4,
)


def test_pressure_tank_has_the_published_cut_sets_and_probability():
    analysis = TreeAnalysis(PRESSURE_TANK)
    assert list_cut_sets(PRESSURE_TANK) == {
        frozenset(names) for names in (["T"], ["K2"], ["S", "S1"], ["S", "K1"], ["S", "R"])
    }
    assert analysis.single_points == ["T", "K2"]
    assert analysis.cut_sets.count_by_order() == {1: 2, 2: 3}
    assert analysis.rare_event_sum == pytest.approx(3.5016e-5, rel=1e-12)
    assert analysis.probability == pytest.approx(3.501584875e-5, rel=1e-9)


def test_pressure_tank_has_the_published_importance():
    measured = {one.event: one for one in TreeAnalysis(PRESSURE_TANK).list_importance()}
    worth = {name: one.achievement_worth for name, one in measured.items()}
    assert worth["T"] == pytest.approx(28558.5, rel=1e-5)
    assert worth["K2"] == pytest.approx(28558.5, rel=1e-5)
    assert worth["S"] == pytest.approx(5.56855, rel=1e-5)
    assert [worth[name] for name in ("S1", "K1", "R")] == pytest.approx([3.85529] * 3, rel=1e-5)
    reduction = {name: one.reduction_worth for name, one in measured.items()}
    assert reduction["K2"] == pytest.approx(6.98083, rel=1e-5)
    assert reduction["T"] == pytest.approx(1.16657, rel=1e-5)
    assert reduction["S"] == pytest.approx(1.00046, rel=1e-5)


def build_two_trains(**probabilities: float) -> FaultTree:
    gates = [
        Gate("top", "all", ("train1", "train2")),
        Gate("train1", "any", ("V1", "P1")),
        Gate("train2", "any", ("V2", "P2")),
    ]
    return build_tree("top", gates, **probabilities)


def test_two_trains_have_the_published_probability():
    analysis = TreeAnalysis(build_two_trains(P1=0.7, P2=0.7, V1=0.5, V2=0.5))
    assert analysis.probability == pytest.approx(0.7225)
    assert sum(analysis.cut_sets.count_by_order().values()) == 4


def test_two_unequal_trains_have_the_published_importance():
    analysis = TreeAnalysis(build_two_trains(P1=0.6, P2=0.7, V1=0.4, V2=0.5))
    assert analysis.probability == pytest.approx(0.646)
    measured = {
        one.event: [
            one.birnbaum,
            one.criticality,
            one.diagnosis,
            one.achievement_worth,
            one.reduction_worth,
        ]
        for one in analysis.list_importance()
    }
    published = {
        "P1": [0.51, 0.4737, 0.7895, 1.316, 1.9],
        "P2": [0.38, 0.4118, 0.8235, 1.176, 1.7],
        "V1": [0.34, 0.2105, 0.5263, 1.316, 1.267],
        "V2": [0.228, 0.1765, 0.5882, 1.176, 1.214],
    }
    assert measured.keys() == published.keys()
    for name, expected in published.items():
        assert measured[name] == pytest.approx(expected, rel=1e-3)


def test_raid5_of_four_disks_is_lost_with_two_of_them():
    disks = {f"disk{n}": 0.03 for n in range(4)}
    analysis = TreeAnalysis(build_tree("lost", [Gate("lost", "at-least", (*disks,), 2)], **disks))
    assert analysis.cut_sets.count_by_order() == {2: 6}
    assert analysis.probability == pytest.approx(0.00518643, rel=1e-6)


def test_top_event_with_a_single_cause_has_infinite_reduction_worth():
    analysis = TreeAnalysis(build_tree("only", [Gate("only", "any", ("a",))], a=0.1))
    assert [one.reduction_worth for one in analysis.list_importance()] == [math.inf]


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
        cut_sets = random_trees.list_cut_sets(tree)
        expected = random_trees.compute_probability(tree, cut_sets)
        assert analysis.probability == pytest.approx(expected, abs=1e-12), seed
        for one in analysis.list_importance():
            certain = random_trees.compute_probability(tree, cut_sets, **{one.event: True})
            impossible = random_trees.compute_probability(tree, cut_sets, **{one.event: False})
            assert one.birnbaum == pytest.approx(certain - impossible, abs=1e-12), seed


@pytest.mark.parametrize("seed", range(20))
def test_random_fault_trees_of_twelve_events_agree_with_brute_force(seed: int):
    tree = random_trees.build_random_tree(seed, max_events=12, max_gates=14)
    assert list_cut_sets(tree) == random_trees.find_minimal_cut_sets(tree)
    expected = random_trees.compute_probability(tree, random_trees.list_cut_sets(tree))
    assert TreeAnalysis(tree).probability == pytest.approx(expected, abs=1e-12)


# --- house events, and limits ---


def test_house_event_that_is_set_has_happened_for_certain():
    gates = {"top": Gate("top", "all", ("maintenance", "lb2"))}
    events = {"lb2": Event("lb2", probability=0.25)}
    tree = FaultTree("tree", "top", gates, events, house={"maintenance": True})
    assert list_cut_sets(tree) == {frozenset({"lb2"})}
    assert TreeAnalysis(tree).probability == 0.25
    off = FaultTree("tree", "top", gates, events, house={"maintenance": False})
    assert TreeAnalysis(off).probability == 0
    assert TreeAnalysis(off).get_margin([]) is None


def test_event_without_probability_leaves_the_top_event_without_one():
    analysis = TreeAnalysis(build_pair(["lb1", "lb2"]))
    assert analysis.missing_probabilities == ["lb1", "lb2"]
    assert analysis.probability is None
    assert analysis.list_importance() == []
    assert [*analysis.iterate_cut_sets()] == [("lb1", "lb2")]


def test_fault_tree_of_300_events_is_analysed_within_five_cpu_seconds():
    trains = [Gate(f"train{n}", "any", tuple(f"e{n}x{m}" for m in range(3))) for n in range(100)]
    top = Gate("top", "at-least", tuple(gate.name for gate in trains), 3)
    events = {name: 0.01 for gate in trains for name in gate.inputs}
    began = time.process_time()
    analysis = TreeAnalysis(build_tree("top", [top, *trains], **events))
    assert analysis.cut_sets.count_by_order() == {3: 27 * math.comb(100, 3)}
    assert analysis.probability == pytest.approx(
        1
        - sum(
            math.comb(100, k) * (q := 1 - 0.99**3) ** k * (1 - q) ** (100 - k) for k in (0, 1, 2)
        )
    )
    assert len(analysis.list_importance()) == 300
    # A ceiling against an algorithm that explodes, far above the tenth of a second that it takes.
    assert time.process_time() - began < 5


def test_fault_tree_above_the_limits_is_refused():
    names = [f"e{n}" for n in range(MAX_EVENTS + 1)]
    large = build_tree("top", [Gate("top", "any", (*names,))], **dict.fromkeys(names, 0.1))
    with pytest.raises(TreeError, match=f"has {MAX_EVENTS + 1} events and at most {MAX_EVENTS}"):
        TreeAnalysis(large)
    disks = dict.fromkeys([f"d{n}" for n in range(60)], 0.1)
    wide = build_tree("top", [Gate("top", "at-least", (*disks,), 30)], **disks)
    with pytest.raises(TreeError, match="needs more than 100 nodes: split it"):
        TreeAnalysis(wide, max_nodes=100)
