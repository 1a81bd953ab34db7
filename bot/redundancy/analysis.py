"""What a fault tree says: its minimal cut sets, its probability, and which events matter. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
HOURS_PER_YEAR = 8766


@dataclass(frozen=True)
class Importance:
    """How much one event matters. The measures are those of NUREG/CR-3385."""

    event: str
    birnbaum: float
    """P(top) with the event certain, less P(top) with it impossible."""
    criticality: float
    """The share of the top's probability in which the event is critical and has happened."""
    diagnosis: float
    """The probability that the event has happened, given that the top has."""
    achievement_worth: float
    """RAW: how many times P(top) grows when the event is certain."""
    reduction_worth: float
    """RRW: how many times P(top) shrinks when the event is impossible; infinite if to nothing."""


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

    @cached_property
    def missing_probabilities(self) -> Sequence[str]:
        """The events without a probability: with them there is none of the top either."""
        return [event.name for event in self.events if event.probability is None]

    @property
    def probability(self) -> float | None:
        """The exact probability of the top event, from 0 to 1."""
        if self.missing_probabilities:
            return None
        return self._diagram.compute_probability(self._top, self._list_probabilities())

    @property
    def rare_event_sum(self) -> float | None:
        """The sum over the minimal cut sets, an upper bound of the probability."""
        if self.missing_probabilities:
            return None
        return self.cut_sets.sum_probabilities(self._list_probabilities())

    @property
    def outages_per_year(self) -> float | None:
        """The expected outages of the service in a year, if every event has a repair time.

        An event of unavailability q and mean repair time r happens q/r times an hour.
        """
        if self.missing_probabilities or not all(event.repair_hours for event in self.events):
            return None
        q = self._list_probabilities()
        birnbaum = self._diagram.compute_birnbaum(self._top, q)
        hourly = (
            birnbaum[n] * q[n] / event.repair_hours
            for n, event in enumerate(self.events)
            if event.repair_hours
        )
        return sum(hourly) * HOURS_PER_YEAR

    def list_importance(self) -> list[Importance]:
        """Return the importance of each event, the greatest risk reduction first."""
        top = self.probability
        if not top:
            return []
        q = self._list_probabilities()
        birnbaum = self._diagram.compute_birnbaum(self._top, q)
        measured = [
            _measure_importance(event.name, birnbaum[n], q[n], top)
            for n, event in enumerate(self.events)
        ]
        return sorted(measured, key=lambda one: (-one.criticality, -one.birnbaum, one.event))

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

    def _list_probabilities(self) -> list[float]:
        return [event.probability or 0.0 for event in self.events]

    def _get_levels(self, names: Collection[str]) -> set[int]:
        return {self._levels[name] for name in names if name in self._levels}

    def _get_names(self, levels: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.events[level].name for level in levels)

    def _get_name(self, level: int) -> str:
        return self.events[level].name


def _measure_importance(event: str, birnbaum: float, q: float, top: float) -> Importance:
    certain, impossible = top + (1 - q) * birnbaum, top - q * birnbaum
    # What is left by rounding is nothing: the top's probability comes from this event alone.
    is_nothing = impossible <= top * 1e-12
    return Importance(
        event,
        birnbaum=birnbaum,
        criticality=birnbaum * q / top,
        diagnosis=certain * q / top,
        achievement_worth=certain / top,
        reduction_worth=float("inf") if is_nothing else top / impossible,
    )
