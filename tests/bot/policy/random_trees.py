"""Random fault trees, and their results by brute force."""

import itertools
import math
import random
from collections.abc import Collection, Iterator, Mapping

from bot.policy.fault_tree import Event, FaultTree, Gate, GateKind


def build_random_tree(seed: int, *, max_events: int = 8, max_gates: int = 7) -> FaultTree:
    """Return a coherent tree in which events and gates are shared."""
    chance = random.Random(seed)  # noqa: S311 - trees, not secrets
    events = [f"e{n}" for n in range(chance.randint(1, max_events))]
    gates: dict[str, Gate] = {}
    for n in range(chance.randint(1, max_gates)):
        # Only what was made before may be an input, so there is no circle.
        known = [*events, *gates]
        inputs = chance.sample(known, chance.randint(1, min(len(known), 4)))
        if gates and list(gates)[-1] not in inputs:
            inputs.append(list(gates)[-1])
        kind: GateKind = chance.choice(("any", "all", "at-least"))
        minimum = chance.randint(1, len(inputs)) if kind == "at-least" else 0
        gates[f"g{n}"] = Gate(f"g{n}", kind, tuple(inputs), minimum)
    named = {name: Event(name) for name in events}
    return FaultTree("random", list(gates)[-1], gates, named)


def is_down(tree: FaultTree, happened: Collection[str]) -> bool:
    """Evaluate the tree gate by gate."""

    def holds(name: str) -> bool:
        if name in tree.house:
            return tree.house[name]
        if name in tree.events:
            return name in happened
        gate = tree.gates[name]
        count = sum(holds(below) for below in gate.inputs)
        return count >= {"any": 1, "all": len(gate.inputs), "at-least": gate.minimum}[gate.kind]

    return holds(tree.top)


def list_subsets(names: Collection[str]) -> Iterator[frozenset[str]]:
    for size in range(len(names) + 1):
        for chosen in itertools.combinations(sorted(names), size):
            yield frozenset(chosen)


def find_minimal_cut_sets(tree: FaultTree) -> set[frozenset[str]]:
    names = [event.name for event in tree.list_events()]
    minimal: list[frozenset[str]] = []
    for subset in list_subsets(names):
        if not any(known <= subset for known in minimal) and is_down(tree, subset):
            minimal.append(subset)
    return set(minimal)


def compute_probability(
    cut_sets: Collection[frozenset[str]], probabilities: Mapping[str, float]
) -> float:
    """Return how likely all events of some cut set have happened, over every combination."""
    return sum(
        math.prod(q if name in happened else 1 - q for name, q in probabilities.items())
        for happened in list_subsets(probabilities)
        if any(cut_set <= happened for cut_set in cut_sets)
    )
