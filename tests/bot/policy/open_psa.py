"""Published fault trees in the Open-PSA Model Exchange Format, to hold the analysis against.

Source of the format: Open-PSA Initiative, "Open-PSA Model Exchange Format", version 2.0d. Of it
gates (and, or, atleast, nested) and basic events with numbers or parameters are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring

from bot.policy.fault_tree import Event, FaultTree, Gate, GateKind

_KINDS: Mapping[str, GateKind] = {"or": "any", "and": "all", "atleast": "at-least"}


@dataclass
class OpenPsaModel:
    """The gates of a file, and the probability of each of its events."""

    gates: dict[str, Gate] = field(default_factory=dict[str, Gate])
    probabilities: dict[str, float] = field(default_factory=dict[str, float])

    def build_tree(self, top: str) -> FaultTree:
        events = {name: Event(name) for name in self.probabilities}
        return FaultTree("published", top, self.gates, events)


def parse_open_psa(text: str) -> OpenPsaModel:
    root, model = fromstring(text, forbid_dtd=True), OpenPsaModel()
    parameters = {one.get("name", ""): one for one in root.iter("define-parameter")}
    for definition in root.iter("define-basic-event"):
        (expression,) = definition
        if expression.tag == "parameter":
            (expression,) = parameters[expression.get("name", "")]
        model.probabilities[definition.get("name", "")] = float(expression.get("value", ""))
    for definition in root.iter("define-gate"):
        (formula,) = (one for one in definition if one.tag in _KINDS)
        _add_gate(model, definition.get("name", ""), formula)
    return model


def _add_gate(model: OpenPsaModel, name: str, formula: Element) -> str:
    """Add a formula, and those within it as gates of their own; return its name."""
    inputs = tuple(
        _add_gate(model, f"{name}:{n}", below) if below.tag in _KINDS else below.get("name", "")
        for n, below in enumerate(formula)
    )
    kind = _KINDS[formula.tag]
    minimum = int(formula.get("min", "0")) if kind == "at-least" else 0
    model.gates[name] = Gate(name, kind, inputs, minimum)
    return name
