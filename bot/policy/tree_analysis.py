"""What a fault tree says: its minimal cut sets, single points of failure and margin. Pure.

They are found in binary decision diagrams of monotone functions. Nodes are numbers; 0 and 1 are
the ends. In a `DecisionDiagram` they mean false and true, and a node branches on whether its
event has happened. In `CutSets` they mean no set at all and the empty set, and a node's high
branch holds the sets with its event.

Sources: Bryant, "Graph-Based Algorithms for Boolean Function Manipulation" (1986); Rauzy, "New
algorithms for fault trees analysis" (1993); Minato, "Zero-suppressed BDDs for set manipulation in
combinatorial problems" (1993).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from math import inf

from bot.policy.fault_tree import Event, FaultTree, Gate, TreeError
from runbooks import Leg

FALSE, TRUE = 0, 1
NO_SET, EMPTY_SET = 0, 1
MAX_NODES = 200_000
# Behind all levels, so that an end is never branched on.
_END = 1 << 30


class TooLargeError(Exception):
    """The diagram of a tree would have more nodes than allowed."""


class _Nodes:
    """Nodes (level, low, high), each stored once."""

    def __init__(self, max_nodes: int) -> None:
        self.levels = [_END, _END]
        self.lows = [0, 1]
        self.highs = [0, 1]
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._max_nodes = max_nodes

    def get_number(self, level: int, low: int, high: int) -> int:
        key = (level, low, high)
        number = self._numbers.get(key)
        if number is None:
            number = len(self.levels)
            if number > self._max_nodes:
                raise TooLargeError(
                    f"the tree needs more than {self._max_nodes:,} nodes: split it into trees of "
                    "parts, or put events that share many gates next to each other"
                )
            self._numbers[key] = number
            self.levels.append(level)
            self.lows.append(low)
            self.highs.append(high)
        return number


class DecisionDiagram:
    """Functions over events, which are levels counted from 0."""

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        self.nodes = _Nodes(max_nodes)
        self._choices: dict[tuple[int, int, int], int] = {}

    def add_event(self, level: int) -> int:
        """Return the function that is true when the event of this level has happened."""
        return self._get_node(level, FALSE, TRUE)

    def choose(self, condition: int, then: int, otherwise: int) -> int:
        """Return `then` where the condition holds, and `otherwise` elsewhere."""
        if condition == TRUE or then == otherwise:
            return then
        if condition == FALSE:
            return otherwise
        if then == TRUE and otherwise == FALSE:
            return condition
        key = (condition, then, otherwise)
        if (known := self._choices.get(key)) is None:
            level = min(self.nodes.levels[node] for node in key)
            low = self.choose(*(self._follow(node, level, self.nodes.lows) for node in key))
            high = self.choose(*(self._follow(node, level, self.nodes.highs) for node in key))
            known = self._choices[key] = self._get_node(level, low, high)
        return known

    def combine_any(self, functions: Sequence[int]) -> int:
        """Return the function that is true where one of these is."""
        return reduce(lambda one, other: self.choose(one, TRUE, other), functions, FALSE)

    def combine_all(self, functions: Sequence[int]) -> int:
        """Return the function that is true where all of these are."""
        return reduce(lambda one, other: self.choose(one, other, FALSE), functions, TRUE)

    def combine_at_least(self, minimum: int, functions: Sequence[int]) -> int:
        """Return the function that is true where at least `minimum` of these are."""
        # reached[k]: at least k of the functions seen so far.
        reached = [TRUE] + [FALSE] * minimum
        for function in functions:
            for k in range(minimum, 0, -1):
                reached[k] = self.choose(function, reached[k - 1], reached[k])
        return reached[minimum]

    def is_true(self, top: int, happened: Collection[int]) -> bool:
        """Return whether the function is true when exactly these events have happened."""
        node = top
        while node not in {FALSE, TRUE}:
            branches = self.nodes.highs if self.nodes.levels[node] in happened else self.nodes.lows
            node = branches[node]
        return node == TRUE

    def _get_node(self, level: int, low: int, high: int) -> int:
        return low if low == high else self.nodes.get_number(level, low, high)

    def _follow(self, node: int, level: int, branches: Sequence[int]) -> int:
        return branches[node] if self.nodes.levels[node] == level else node


class CutSets:
    """The minimal cut sets of a function: the smallest sets of events that make it true."""

    def __init__(self, diagram: DecisionDiagram, top: int, max_nodes: int = MAX_NODES) -> None:
        self._nodes = _Nodes(max_nodes)
        self._differences: dict[tuple[int, int], int] = {}
        self._top = self._minimise(diagram, top, {})
        self._counts: dict[int, Counter[int]] = {
            NO_SET: Counter(),
            EMPTY_SET: Counter({0: 1}),
        }

    def count_by_order(self) -> dict[int, int]:
        """Return how many cut sets there are of each size."""
        return dict(sorted(self._count(self._top).items()))

    def iterate(self, order: int) -> Iterator[tuple[int, ...]]:
        """Yield the cut sets of this size."""
        yield from self._iterate(self._top, order)

    def count_standing(self, down: Collection[int]) -> int | None:
        """Return the least number of events of a cut set that are not down.

        None: there is no cut set, so nothing can take the service away.
        """
        known: dict[int, float] = {NO_SET: inf, EMPTY_SET: 0}

        def measure(node: int) -> float:
            if node not in known:
                cost = 0 if self._nodes.levels[node] in down else 1
                known[node] = min(
                    measure(self._nodes.lows[node]), measure(self._nodes.highs[node]) + cost
                )
            return known[node]

        least = measure(self._top)
        return None if least == inf else int(least)

    def find_nearest(self, down: Collection[int]) -> tuple[int, ...] | None:
        """Return a cut set of which the fewest events are not down; None if there is none."""
        known: dict[int, tuple[int, tuple[int, ...]] | None] = {NO_SET: None, EMPTY_SET: (0, ())}

        def find(node: int) -> tuple[int, tuple[int, ...]] | None:
            if node not in known:
                level = self._nodes.levels[node]
                best, rest = find(self._nodes.lows[node]), find(self._nodes.highs[node])
                if rest is not None:
                    with_event = (rest[0] + (level not in down), (level, *rest[1]))
                    best = with_event if best is None else min(best, with_event)
                known[node] = best
            return known[node]

        nearest = find(self._top)
        return nearest[1] if nearest else None

    def find_within(
        self, down: Collection[int], one_of: Collection[int] | None = None
    ) -> tuple[int, ...] | None:
        """Return a smallest cut set whose events are all down, or None.

        one_of: at least one of these must be in it.
        """
        known: dict[tuple[int, bool], tuple[int, ...] | None] = {}

        def find(node: int, is_met: bool) -> tuple[int, ...] | None:  # noqa: FBT001 - a state
            if node == NO_SET or (node == EMPTY_SET and not is_met):
                return None
            if node == EMPTY_SET:
                return ()
            key = (node, is_met)
            if key not in known:
                level = self._nodes.levels[node]
                found = find(self._nodes.lows[node], is_met)
                if level in down:
                    met = is_met or one_of is None or level in one_of
                    rest = find(self._nodes.highs[node], met)
                    if rest is not None and (found is None or len(rest) + 1 < len(found)):
                        found = (level, *rest)
                known[key] = found
            return known[key]

        return find(self._top, one_of is None)

    def _minimise(self, diagram: DecisionDiagram, node: int, known: dict[int, int]) -> int:
        if node in {FALSE, TRUE}:
            return NO_SET if node == FALSE else EMPTY_SET
        if node not in known:
            low = self._minimise(diagram, diagram.nodes.lows[node], known)
            high = self._minimise(diagram, diagram.nodes.highs[node], known)
            level = diagram.nodes.levels[node]
            known[node] = self._get_node(level, low, self._remove_supersets(high, low))
        return known[node]

    def _remove_supersets(self, sets: int, of: int) -> int:
        """Return the sets that contain none of the others."""
        if sets == NO_SET or of == NO_SET:
            return sets
        if of == EMPTY_SET or sets == of:
            return NO_SET
        nodes = self._nodes
        if nodes.levels[of] < nodes.levels[sets]:
            # What holds an event that none of our sets has is contained in none of them.
            return self._remove_supersets(sets, nodes.lows[of])
        key = (sets, of)
        if (known := self._differences.get(key)) is None:
            level, low, high = nodes.levels[sets], nodes.lows[sets], nodes.highs[sets]
            if nodes.levels[of] == level:
                high = self._remove_supersets(high, nodes.highs[of])
                of = nodes.lows[of]
            low = self._remove_supersets(low, of)
            high = self._remove_supersets(high, of)
            known = self._differences[key] = self._get_node(level, low, high)
        return known

    def _get_node(self, level: int, low: int, high: int) -> int:
        return low if high == NO_SET else self._nodes.get_number(level, low, high)

    def _count(self, node: int) -> Counter[int]:
        if node not in self._counts:
            counts = Counter(self._count(self._nodes.lows[node]))
            for order, count in self._count(self._nodes.highs[node]).items():
                counts[order + 1] += count
            self._counts[node] = counts
        return self._counts[node]

    def _iterate(self, node: int, order: int) -> Iterator[tuple[int, ...]]:
        if not self._count(node)[order]:
            return
        if node == EMPTY_SET:
            yield ()
            return
        for rest in self._iterate(self._nodes.highs[node], order - 1):
            yield (self._nodes.levels[node], *rest)
        yield from self._iterate(self._nodes.lows[node], order)


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
