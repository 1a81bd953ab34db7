"""Fault trees as they are written in YAML. Pure.

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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from bot.redundancy.condition import parse_condition
from bot.redundancy.fault_tree import Event, FaultTree, Gate, TreeError
from connectors.command import refuse_invisible
from runbooks import Leg

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
