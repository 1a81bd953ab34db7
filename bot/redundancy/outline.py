"""A fault tree as nested text, for chat and terminal. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bot.redundancy.fault_tree import FaultTree, Gate


@dataclass(frozen=True)
class OutlineLine:
    """One line. branch: the lines that lead to it, such as `│  ├─ `."""

    branch: str
    name: str
    title: str
    note: str
    """How a gate combines what is below it, or the state of an event."""

    def __str__(self) -> str:
        title = f": {self.title}" if self.title else ""
        note = f" [{self.note}]" if self.note else ""
        return f"{self.branch}{self.name}{title}{note}"


def outline_tree(tree: FaultTree, states: Mapping[str, str] | None = None) -> list[OutlineLine]:
    """Return the tree line by line. states: a word for each event whose state is known."""
    return [*_outline(tree, tree.top, states or {}, "", "", set())]


def describe_gate(gate: Gate) -> str:
    if gate.kind == "at-least":
        return f"at least {gate.minimum} of {len(gate.inputs)}"
    return f"{gate.kind} of {len(gate.inputs)}"


def _outline(
    tree: FaultTree,
    name: str,
    states: Mapping[str, str],
    branch: str,
    below: str,
    shown: set[str],
) -> Iterator[OutlineLine]:
    gate = tree.gates.get(name)
    if gate is None:
        event = tree.events.get(name)
        state = states.get(name, "")
        if name in tree.house:
            state = "set" if tree.house[name] else "not set"
        yield OutlineLine(branch, name, event.title if event else "", state)
        return
    if name in shown:
        yield OutlineLine(branch, name, gate.title, "shown above")
        return
    shown.add(name)
    yield OutlineLine(branch, name, gate.title, describe_gate(gate))
    for inner in gate.inputs:
        is_last = inner == gate.inputs[-1]
        yield from _outline(
            tree,
            inner,
            states,
            below + ("└─ " if is_last else "├─ "),
            below + ("   " if is_last else "│  "),
            shown,
        )
