"""What a fault tree says: its minimal cut sets, single points of failure and margin. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

from bot.redundancy.decision_diagram import (
    FALSE,
    MAX_NODES,
    TRUE,
    CutSets,
    DecisionDiagram,
    TooLargeError,
)
from bot.redundancy.fault_tree import Event, FaultTree, Gate, TreeError
from runbooks import Leg

# The recursion of the diagrams is as deep as there are events.
MAX_EVENTS = 300


class TreeAnalysis:
    """A tree's diagrams. Raises TreeError for a tree that is too large to be analysed."""

    def __init__(self, tree: FaultTree, max_nodes: int = MAX_NODES) -> None:
        self.tree = tree
        events = [event for event in tree.list_events() if event.name not in tree.house]
        if len(events) > MAX_EVENTS:
            raise TreeError(
                f"{tree.name} has {len(events)} events and at most {MAX_EVENTS} can be analysed: "
                "split it into trees of parts"
            )
        self.events: Sequence[Event] = events
        self._levels: Mapping[str, int] = {event.name: n for n, event in enumerate(events)}
        self._diagram = DecisionDiagram(max_nodes)
        try:
            self._top = self._build(tree)
            self.cut_sets = CutSets(self._diagram, self._top, max_nodes)
        except TooLargeError as error:
            raise TreeError(f"{tree.name} is too large: {error}") from None

    @cached_property
    def single_points(self) -> Sequence[str]:
        """The events that take the service away alone."""
        return [self._get_name(levels[0]) for levels in self.cut_sets.iterate(1)]

    def iterate_cut_sets(self, max_order: int | None = None) -> Iterator[tuple[str, ...]]:
        """Yield the minimal cut sets by the names of their events, the smallest first."""
        for order in self.cut_sets.count_by_order():
            if max_order is None or order <= max_order:
                for levels in self.cut_sets.iterate(order):
                    yield self._get_names(levels)

    def is_down(self, happened: Collection[str]) -> bool:
        """Return whether the service is down when exactly these events have happened."""
        return self._diagram.is_true(self._top, self._get_levels(happened))

    def get_margin(self, down: Collection[str]) -> int | None:
        """Return how many more events take the service away; 0: it is down, None: nothing can."""
        return self.cut_sets.count_standing(self._get_levels(down))

    def find_nearest_cut_set(self, down: Collection[str]) -> tuple[str, ...]:
        """Return a minimal cut set of which the fewest events are not down; () if none exists."""
        return self._get_names(self.cut_sets.find_nearest(self._get_levels(down)) or ())

    def find_cut_set(
        self, down: Collection[str], one_of: Collection[str] | None = None
    ) -> tuple[str, ...] | None:
        """Return a smallest minimal cut set whose events are all down, with one of these in it."""
        wanted = None if one_of is None else self._get_levels(one_of)
        levels = self.cut_sets.find_within(self._get_levels(down), wanted)
        return None if levels is None else self._get_names(levels)

    def list_events_of(self, legs: Collection[Leg]) -> list[str]:
        """Return the events that happen when these legs are taken away."""
        return [
            event.name
            for event in self.events
            if event.leg is not None and any(event.leg.overlaps(leg) for leg in legs)
        ]

    def _build(self, tree: FaultTree) -> int:
        functions: dict[str, int] = {
            name: TRUE if is_set else FALSE for name, is_set in tree.house.items()
        }
        for name, level in self._levels.items():
            functions[name] = self._diagram.add_event(level)

        def build(name: str) -> int:
            if name not in functions:
                gate = tree.gates[name]
                functions[name] = self._combine(gate, [build(below) for below in gate.inputs])
            return functions[name]

        return build(tree.top)

    def _combine(self, gate: Gate, inputs: Sequence[int]) -> int:
        if gate.kind == "any":
            return self._diagram.combine_any(inputs)
        if gate.kind == "all":
            return self._diagram.combine_all(inputs)
        return self._diagram.combine_at_least(gate.minimum, inputs)

    def _get_levels(self, names: Collection[str]) -> set[int]:
        return {self._levels[name] for name in names if name in self._levels}

    def _get_names(self, levels: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.events[level].name for level in levels)

    def _get_name(self, level: int) -> str:
        return self.events[level].name
