"""Fault trees in the Open-PSA Model Exchange Format, XML that other tools read and write. Pure.

Source of the format: Open-PSA Initiative, "Open-PSA Model Exchange Format", version 2.0d. Of it
gates (and, or, atleast, nested), basic events with numbers, house events, labels and attributes
are read; a formula that is not coherent (not, xor, …) is refused. What Keyturn adds to an event
(leg, check, when, repair time) is written as attributes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from xml.etree.ElementTree import Element, ParseError, SubElement, indent, tostring

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from bot.redundancy.fault_tree import Event, FaultTree, Gate, GateKind, TreeError
from runbooks import Leg

_KINDS: dict[str, GateKind] = {"or": "any", "and": "all", "atleast": "at-least"}
_ELEMENTS = {kind: element for element, kind in _KINDS.items()}
_REFERENCES = {"gate", "event", "basic-event", "house-event"}
# In front of a formula a definition may hold these.
_DESCRIPTIONS = {"label", "attributes"}


@dataclass
class _Parts:
    gates: dict[str, Gate] = field(default_factory=dict[str, Gate])
    events: dict[str, Event] = field(default_factory=dict[str, Event])
    house: dict[str, bool] = field(default_factory=dict[str, bool])
    parameters: dict[str, float] = field(default_factory=dict[str, float])


def parse_open_psa(text: str, *, top: str = "") -> FaultTree:
    """Return the tree of an Open-PSA file. Raises TreeError.

    top: the gate to begin at; needed if several gates are no other gate's input.
    """
    root = _parse_xml(text)
    parts = _Parts()
    for parameter in root.iter("define-parameter"):
        number = _read_number(parameter, parts)
        if number is not None:
            parts.parameters[_get_name(parameter)] = number
    for definition in root.iter():
        _read_definition(definition, parts)
    for name in _list_references(parts):
        if name not in {*parts.gates, *parts.events, *parts.house}:
            parts.events[name] = Event(name)
    tree = next(root.iter("define-fault-tree"), None)
    return FaultTree(
        (tree.get("name") if tree is not None else "") or "imported",
        _choose_top(parts, top),
        parts.gates,
        parts.events,
        parts.house,
        title=_read_label(tree) if tree is not None else "",
    )


def _parse_xml(text: str) -> Element:
    try:
        root = fromstring(text, forbid_dtd=True)
    except DefusedXmlException:
        raise TreeError("the file has a DTD: remove the <!DOCTYPE …> and its entities") from None
    except ParseError as error:
        raise TreeError(f"this is not XML: {error}") from None
    if root.tag != "opsa-mef":
        raise TreeError(f"the outermost element is <{root.tag}>, not <opsa-mef>")
    return root


def format_open_psa(tree: FaultTree) -> str:
    """Return the tree as an Open-PSA file."""
    root = Element("opsa-mef")
    fault_tree = SubElement(root, "define-fault-tree", name=tree.name)
    _add_label(fault_tree, tree.title)
    # The top comes first: other tools take it for the root.
    for gate in sorted(tree.gates.values(), key=lambda gate: gate.name != tree.top):
        definition = SubElement(fault_tree, "define-gate", name=gate.name)
        _add_label(definition, gate.title)
        formula = SubElement(definition, _ELEMENTS[gate.kind])
        if gate.kind == "at-least":
            formula.set("min", str(gate.minimum))
        for name in gate.inputs:
            SubElement(formula, _get_reference_tag(tree, name), name=name)
    for event in tree.events.values():
        definition = SubElement(fault_tree, "define-basic-event", name=event.name)
        _add_label(definition, event.title)
        _add_attributes(definition, event)
        if event.probability is not None:
            SubElement(definition, "float", value=repr(event.probability))
    for name, is_set in tree.house.items():
        definition = SubElement(fault_tree, "define-house-event", name=name)
        SubElement(definition, "constant", value=str(is_set).lower())
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _read_definition(definition: Element, parts: _Parts) -> None:
    if definition.tag == "define-gate":
        name = _get_name(definition)
        formula = _get_formula(definition)
        parts.gates[name] = replace(
            _read_gate(name, formula, parts), title=_read_label(definition)
        )
    elif definition.tag == "define-basic-event":
        event = _read_event(definition, parts)
        parts.events[event.name] = event
    elif definition.tag == "define-house-event":
        constant = definition.find("constant")
        is_set = constant is not None and constant.get("value") == "true"
        parts.house[_get_name(definition)] = is_set


def _read_gate(name: str, formula: Element, parts: _Parts) -> Gate:
    if formula.tag in _REFERENCES:
        return Gate(name, "any", (_get_name(formula),))
    kind = _KINDS.get(formula.tag)
    if kind is None:
        raise TreeError(
            f"gate {name} has <{formula.tag}>: only and, or and atleast are supported, since a "
            "failure must never repair anything"
        )
    inputs: list[str] = []
    for number, below in enumerate(formula, 1):
        if below.tag in _REFERENCES:
            inputs.append(_get_name(below))
        elif below.tag == "constant":
            constant = f"{name}:{number}"
            parts.house[constant] = below.get("value") == "true"
            inputs.append(constant)
        else:
            nested = f"{name}:{number}"
            parts.gates[nested] = _read_gate(nested, below, parts)
            inputs.append(nested)
    minimum = formula.get("min", "")
    if kind == "at-least" and not minimum.isdecimal():
        raise TreeError(f"gate {name}: <atleast> needs min, a whole number")
    return Gate(name, kind, tuple(inputs), int(minimum) if kind == "at-least" else 0)


def _read_event(definition: Element, parts: _Parts) -> Event:
    attributes = {
        str(one.get("name")): str(one.get("value")) for one in definition.iter("attribute")
    }
    try:
        repair_hours = float(attributes["mttr"]) if "mttr" in attributes else None
    except ValueError:
        raise TreeError(f"event {_get_name(definition)}: mttr must be a number") from None
    return Event(
        _get_name(definition),
        title=_read_label(definition),
        leg=Leg.parse(attributes["leg"]) if attributes.get("leg") else None,
        check=attributes.get("check", ""),
        when=attributes.get("when", ""),
        probability=_read_number(definition, parts),
        repair_hours=repair_hours,
        is_undeveloped=attributes.get("undeveloped") == "true",
    )


def _read_number(definition: Element, parts: _Parts) -> float | None:
    """Return a definition's number; None if it has none, or an expression that is not read."""
    for below in definition:
        value = below.get("value", "")
        if below.tag in {"float", "int"}:
            try:
                return float(value)
            except ValueError:
                raise TreeError(f"{definition.get('name')}: {value!r} is not a number") from None
        if below.tag == "parameter":
            return parts.parameters.get(_get_name(below))
    return None


def _list_references(parts: _Parts) -> Iterator[str]:
    for gate in list(parts.gates.values()):
        yield from gate.inputs


def _choose_top(parts: _Parts, top: str) -> str:
    if top:
        return top
    used = Counter(_list_references(parts))
    tops = [name for name in parts.gates if not used[name]]
    if len(tops) != 1:
        raise TreeError(
            f"the file has {len(tops)} top gates ({', '.join(tops[:5]) or 'none'}): name one "
            "with --top"
        )
    return tops[0]


def _get_formula(definition: Element) -> Element:
    for below in definition:
        if below.tag not in _DESCRIPTIONS:
            return below
    raise TreeError(f"gate {_get_name(definition)} has no formula")


def _get_name(element: Element) -> str:
    name = element.get("name", "")
    if not name:
        raise TreeError(f"a <{element.tag}> has no name")
    # A name may be qualified by its container.
    return name.rpartition(".")[2] if element.tag in _REFERENCES and "." in name else name


def _read_label(definition: Element) -> str:
    label = definition.find("label")
    return " ".join((label.text or "").split()) if label is not None else ""


def _add_label(definition: Element, title: str) -> None:
    if title:
        SubElement(definition, "label").text = title


def _add_attributes(definition: Element, event: Event) -> None:
    values = {
        "leg": str(event.leg) if event.leg else "",
        "check": event.check,
        "when": event.when,
        "mttr": repr(event.repair_hours) if event.repair_hours else "",
        "undeveloped": "true" if event.is_undeveloped else "",
    }
    if any(values.values()):
        attributes = SubElement(definition, "attributes")
        for name, value in values.items():
            if value:
                SubElement(attributes, "attribute", name=name, value=value)


def _get_reference_tag(tree: FaultTree, name: str) -> str:
    if name in tree.gates:
        return "gate"
    return "house-event" if name in tree.house else "basic-event"
