"""Fault trees: a service that is down, and what must fail together for that. Pure.

The notation is that of the Fault Tree Handbook (NUREG-0492), without NOT and XOR: a failure never
repairs anything. So each minimal cut set is a set of events, and taking one more leg away never
makes the service safer.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from runbooks import Leg

GateKind = Literal["any", "all", "at-least"]


class TreeError(ValueError):
    """A fault tree is not valid. where: the keys that lead to the mistake in its file."""

    def __init__(self, message: str, where: Sequence[str | int] = ()) -> None:
        super().__init__(message)
        self.where = where


@dataclass(frozen=True)
class Event:
    """A basic event: one thing that fails."""

    name: str
    title: str = ""
    leg: Leg | None = None
    """What is down when the event has happened."""
    check: str = ""
    """The command of a check, such as `service status lb1 haproxy`."""
    when: str = ""
    """Which result of the check means failed; left out, a check that needs attention."""
    is_undeveloped: bool = False
    """Whether nothing can be known of it; it counts as up."""


@dataclass(frozen=True)
class Gate:
    """How failures below combine: any of them, all of them, or at least so many."""

    name: str
    kind: GateKind
    inputs: tuple[str, ...]
    minimum: int = 0
    """How many inputs must fail, of an at-least gate."""
    title: str = ""


@dataclass(frozen=True)
class FaultTree:
    """A service's tree. top: the name of its highest gate, or of its only event."""

    name: str
    top: str
    gates: Mapping[str, Gate]
    events: Mapping[str, Event]
    house: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Events that are set: they have happened for certain, or cannot happen."""
    title: str = ""
    keep: int = 1
    """The margin that the waves of a request for several hosts leave."""
    max_age_minutes: float = 15
    """A check that ran longer ago says nothing of its event any more."""

    def __post_init__(self) -> None:
        _check_names(self)
        _check_circles(self)

    def list_events(self) -> list[Event]:
        """Return the events that the top depends on, in the order of their first appearance."""
        names = dict.fromkeys(name for name in self.walk() if name in self.events)
        return [self.events[name] for name in names]

    def walk(self) -> Iterator[str]:
        """Yield every name below the top, depth first, each gate's inputs once."""
        entered: set[str] = set()
        stack = [self.top]
        while stack:
            name = stack.pop()
            yield name
            if name in self.gates and name not in entered:
                entered.add(name)
                stack.extend(reversed(self.gates[name].inputs))

    def get_title(self, name: str) -> str:
        """Return what a gate or event says, or its name."""
        node = self.gates.get(name) or self.events.get(name)
        return (node.title if node else "") or name


def build_pair(names: Sequence[str]) -> FaultTree:
    """Return the tree of hosts that carry one service together: it is down when all are."""
    events = {host: Event(host, title=f"{host} is down", leg=Leg(host)) for host in names}
    listed = ", ".join(names)
    gate = Gate("all-down", "all", tuple(names), title=f"none of {listed} is left")
    return FaultTree("-".join(names), gate.name, {gate.name: gate}, events, title=gate.title)


def _check_names(tree: FaultTree) -> None:
    known = {*tree.events, *tree.gates, *tree.house}
    for name in tree.gates:
        if name in tree.events or name in tree.house:
            raise TreeError(f"{name} is a gate and an event: rename one of them", ("gates", name))
    if tree.top not in known:
        raise TreeError(f"{tree.top} is not a gate or event of this tree", ("top",))
    for gate in tree.gates.values():
        _check_inputs(gate, known)


def _check_inputs(gate: Gate, known: Collection[str]) -> None:
    where = ("gates", gate.name)
    for name in gate.inputs:
        if name not in known:
            raise TreeError(f"{name} is not a gate, event or tree: correct or add it", where)
    if len(set(gate.inputs)) < len(gate.inputs):
        raise TreeError(f"{gate.name} names an input twice", where)
    if gate.kind == "at-least" and not 1 <= gate.minimum <= len(gate.inputs):
        raise TreeError(
            f"at-least must be between 1 and {len(gate.inputs)}, the number of inputs", where
        )


def _check_circles(tree: FaultTree) -> None:
    finished: set[str] = set()
    for start in tree.gates:
        path: list[str] = []
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, is_left = stack.pop()
            if is_left:
                finished.add(path.pop())
            elif name in path:
                circle = " → ".join([*path[path.index(name) :], name])
                raise TreeError(f"the gates go round in a circle: {circle}", ("gates", name))
            elif name in tree.gates and name not in finished:
                path.append(name)
                stack.append((name, True))
                stack.extend((below, False) for below in tree.gates[name].inputs)
