"""Fault trees: a service that is down, and what must fail together for that. Pure.

The notation is that of the Fault Tree Handbook (NUREG-0492), without NOT and XOR: a failure never
repairs anything. So each minimal cut set is a set of events, and taking one more leg away never
makes the service safer. A tree as it is written in YAML:

    top: shop-down
    gates:
      shop-down: {says: The shop is down, any: [no-balancer, storage]}
      no-balancer: {says: No balancer is left, all: [lb1, lb2]}
      no-quorum: {at-least: 2, of: [db1, db2, db3]}
    events:
      lb1: {says: lb1 is down, leg: lb1/haproxy, check: service status lb1 haproxy}

An input that is neither a gate nor an event of the file, such as `storage` above, is the top of
the tree of that name. Events of the same name in trees that belong together are one event.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from bot.policy.tree_condition import parse_condition
from connectors.visible_text import refuse_invisible
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


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}$"
TreeName = Annotated[str, Field(pattern=NAME_PATTERN)]
Text = Annotated[str, Field(max_length=200), AfterValidator(refuse_invisible)]


def _check_condition(text: str) -> str:
    """Return the condition of an event as it is written. Raises ValueError."""
    if text:
        parse_condition(text)
    return text


class GateModel(BaseModel):
    """One gate: `any: […]`, `all: […]`, or `at-least: 2, of: […]`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    says: Text = ""
    any: Sequence[TreeName] = ()
    all: Sequence[TreeName] = ()
    at_least: int | None = Field(default=None, alias="at-least")
    of: Sequence[TreeName] = ()

    @model_validator(mode="after")
    def _require_one_kind(self) -> "GateModel":
        has_count = self.at_least is not None
        if bool(self.any) + bool(self.all) + has_count != 1 or has_count != bool(self.of):
            raise ValueError(
                "give one of `any: [one, other]`, `all: [one, other]`, "
                "or `at-least: 2, of: [one, other, third]`"
            )
        return self

    def build(self, name: str) -> Gate:
        if self.at_least is not None:
            return Gate(name, "at-least", tuple(self.of), self.at_least, self.says)
        if self.any:
            return Gate(name, "any", tuple(self.any), title=self.says)
        return Gate(name, "all", tuple(self.all), title=self.says)


class EventModel(BaseModel):
    """One event. leg: what it takes away, such as lb1/haproxy. check, when: how it is seen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    says: Text = ""
    leg: Annotated[str, Field(pattern=r"^[a-z0-9-]+(/[A-Za-z0-9@._/-]+)?$")] | None = None
    check: Text = ""
    when: Annotated[Text, AfterValidator(_check_condition)] = ""
    undeveloped: bool = False

    @model_validator(mode="after")
    def _require_check(self) -> "EventModel":
        if self.when and not self.check:
            raise ValueError("when: says which result of a check means failed: add check")
        return self

    def build(self, name: str) -> Event:
        return Event(
            name,
            title=self.says,
            leg=Leg.parse(self.leg) if self.leg else None,
            check=self.check,
            when=self.when,
            is_undeveloped=self.undeveloped,
        )


class TreeModel(BaseModel):
    """A tree's file.

    keep: the margin that waves leave. max-age: the minutes after which a check counts as unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    says: Text = ""
    top: TreeName
    gates: Mapping[TreeName, GateModel] = {}
    events: Mapping[TreeName, EventModel] = {}
    house: Mapping[TreeName, bool] = {}
    keep: Annotated[int, Field(ge=1, le=100)] = 1
    max_age: Annotated[float, Field(gt=0, le=10080, alias="max-age")] = 15


def link_tree(name: str, models: Mapping[str, TreeModel]) -> FaultTree:
    """Build a tree from its file, with the trees that it names. Raises TreeError."""
    parts: dict[str, Any] = {"gates": {}, "events": {}, "house": {}}
    _add_tree(name, models, parts, prefix="", path=[name])
    model = models[name]
    return FaultTree(
        name,
        _find_top(name, models, ""),
        parts["gates"],
        parts["events"],
        parts["house"],
        title=model.says,
        keep=model.keep,
        max_age_minutes=model.max_age,
    )


def _add_tree(
    name: str,
    models: Mapping[str, TreeModel],
    parts: dict[str, Any],
    *,
    prefix: str,
    path: Sequence[str],
) -> None:
    """Add a tree's gates under names with its prefix, its events, and the trees that it names."""
    model = models[name]
    for event_name, event in model.events.items():
        built = event.build(event_name)
        if parts["events"].setdefault(event_name, built) != built:
            raise TreeError(
                f"{event_name} is another event in a tree that belongs to this one: rename one",
                ("events", event_name),
            )
    parts["house"].update(model.house)
    for gate_name, gate_model in model.gates.items():
        gate = gate_model.build(gate_name)
        inputs: list[str] = []
        for below in gate.inputs:
            linked = below not in {*model.gates, *model.events, *model.house} and below in models
            if linked:
                if below in path:
                    circle = " → ".join([*path, below])
                    raise TreeError(f"trees go round in a circle: {circle}", ("gates", gate_name))
                _add_tree(below, models, parts, prefix=f"{below}:", path=[*path, below])
                inputs.append(_find_top(below, models, f"{below}:"))
            else:
                inputs.append(f"{prefix}{below}" if below in model.gates else below)
        full = f"{prefix}{gate_name}"
        parts["gates"][full] = replace(gate, name=full, inputs=tuple(inputs))


def _find_top(name: str, models: Mapping[str, TreeModel], prefix: str) -> str:
    model = models[name]
    return f"{prefix}{model.top}" if model.top in model.gates else model.top
