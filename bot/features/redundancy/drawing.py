"""A fault tree as an SVG picture with the standard symbols, and as nested text. Pure.

The symbols are those of the Fault Tree Handbook, NUREG-0492, chapter IV: a dome for AND, a shield
for OR, both with a number for k of n, a circle for a basic event, a diamond for one that is not
developed further, a house for one that is set, a triangle for a part that is drawn elsewhere.
"""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element, SubElement, tostring

from bot.policy.fault_tree import FaultTree, Gate

WIDTH, LEVEL_HEIGHT, BOX_WIDTH, BOX_HEIGHT = 176, 150, 160, 58
_MARGIN, _LINE_HEIGHT, _SYMBOL = 16, 15, 20
_LETTERS_IN_LINE, _MAX_LINES = 24, 3
_SHAPES = {
    "all": "M -20 20 L -20 0 A 20 20 0 0 1 20 0 L 20 20 Z",
    "any": "M -20 20 C -20 0 -12 -14 0 -22 C 12 -14 20 0 20 20 Q 0 8 -20 20 Z",
    "undeveloped": "M 0 -20 L 24 0 L 0 20 L -24 0 Z",
    "house": "M -18 20 L -18 -4 L 0 -20 L 18 -4 L 18 20 Z",
    "transfer": "M 0 -18 L 20 18 L -20 18 Z",
}
# For pictures that stand alone; pages have the same rules in their stylesheet.
_STYLE = """
.tree-box, .tree-symbol { fill: var(--tree-paper, #fff); stroke: currentColor; stroke-width: 1.5 }
.tree-line { stroke: currentColor; stroke-width: 1.5; fill: none }
.tree-text { font: 12px sans-serif; fill: currentColor; text-anchor: middle }
.tree-state { font: bold 12px sans-serif; fill: currentColor; text-anchor: middle }
.is-failed .tree-box, .is-failed .tree-symbol { stroke-width: 3.5 }
.is-unknown .tree-box, .is-unknown .tree-symbol { stroke-dasharray: 3 3 }
.is-claimed .tree-box, .is-claimed .tree-symbol { stroke-dasharray: 9 3; stroke-width: 2.5 }
"""


@dataclass
class _Node:
    name: str
    children: list["_Node"] = field(default_factory=list["_Node"])
    is_transfer: bool = False
    depth: int = 0
    x: float = 0.0


def draw_tree(tree: FaultTree, states: Mapping[str, str] | None = None) -> str:
    """Return the picture for a page. states: a word for each event that does not stand."""
    return tostring(_build_picture(tree, states or {}), encoding="unicode")


def draw_tree_file(tree: FaultTree) -> str:
    """Return the picture as a file of its own, with its style."""
    picture = _build_picture(tree, {})
    style = Element("style")
    style.text = _STYLE
    picture.insert(1, style)
    picture.set("xmlns", "http://www.w3.org/2000/svg")
    return tostring(picture, encoding="unicode") + "\n"


def _build_picture(tree: FaultTree, states: Mapping[str, str]) -> Element:
    top = _arrange(tree, tree.top, 0, set())
    leaves = _place(top, 0)
    depth = _measure_depth(top) + 1
    width = leaves * WIDTH + 2 * _MARGIN
    # The last level has no branches below its symbols.
    last_level = BOX_HEIGHT + 10 + 2 * _SYMBOL
    height = (depth - 1) * LEVEL_HEIGHT + last_level + 2 * _MARGIN
    svg = Element(
        "svg",
        {
            "viewBox": f"0 0 {width} {height}",
            "width": str(width),
            "height": str(height),
            "role": "img",
            "class": "fault-tree",
        },
    )
    SubElement(svg, "title").text = f"Fault tree {tree.name}: {tree.get_title(tree.top)}"
    _draw_node(svg, tree, top, states)
    return svg


def _arrange(tree: FaultTree, name: str, depth: int, drawn: set[str]) -> _Node:
    node = _Node(name, depth=depth)
    if name in tree.gates:
        if name in drawn:
            node.is_transfer = True
        else:
            drawn.add(name)
            node.children = [
                _arrange(tree, below, depth + 1, drawn) for below in tree.gates[name].inputs
            ]
    return node


def _place(node: _Node, first_leaf: int) -> int:
    """Put each leaf beside the one before it, and each gate over the middle of its inputs."""
    leaf = first_leaf
    for child in node.children:
        leaf = _place(child, leaf)
    if not node.children:
        node.x = _MARGIN + (first_leaf + 0.5) * WIDTH
        return first_leaf + 1
    node.x = (node.children[0].x + node.children[-1].x) / 2
    return leaf


def _measure_depth(node: _Node) -> int:
    return max([node.depth, *map(_measure_depth, node.children)])


def _draw_node(svg: Element, tree: FaultTree, node: _Node, states: Mapping[str, str]) -> None:
    top = _MARGIN + node.depth * LEVEL_HEIGHT
    state = states.get(node.name, "")
    group = SubElement(svg, "g", {"class": f"is-{state.split()[0]}" if state else "tree-node"})
    SubElement(group, "title").text = _describe(tree, node, state)
    symbol_y = top + BOX_HEIGHT + 10 + _SYMBOL
    _add_line(group, node.x, top + BOX_HEIGHT, node.x, symbol_y - _SYMBOL + 2)
    if node.children:
        _draw_branches(group, node, symbol_y)
    _draw_box(group, tree.get_title(node.name), node.x, top, state)
    _draw_symbol(group, tree, node, symbol_y)
    for child in node.children:
        _draw_node(svg, tree, child, states)


def _draw_branches(group: Element, node: _Node, symbol_y: float) -> None:
    below = _MARGIN + (node.depth + 1) * LEVEL_HEIGHT
    bar = below - 14
    _add_line(group, node.x, symbol_y + _SYMBOL - 6, node.x, bar)
    _add_line(group, node.children[0].x, bar, node.children[-1].x, bar)
    for child in node.children:
        _add_line(group, child.x, bar, child.x, below)


def _draw_box(group: Element, title: str, x: float, top: float, state: str) -> None:
    SubElement(
        group,
        "rect",
        {
            "class": "tree-box",
            "x": f"{x - BOX_WIDTH / 2:g}",
            "y": f"{top:g}",
            "width": str(BOX_WIDTH),
            "height": str(BOX_HEIGHT),
            "rx": "3",
        },
    )
    room = _MAX_LINES - 1 if state else _MAX_LINES
    lines = textwrap.wrap(title, _LETTERS_IN_LINE, max_lines=room, placeholder=" …") or [""]
    first = top + BOX_HEIGHT / 2 - (len(lines) + bool(state)) * _LINE_HEIGHT / 2 + 11
    for n, line in enumerate(lines):
        _add_text(group, line, x, first + n * _LINE_HEIGHT, "tree-text")
    if state:
        _add_text(group, state, x, first + len(lines) * _LINE_HEIGHT, "tree-state")


def _draw_symbol(group: Element, tree: FaultTree, node: _Node, y: float) -> None:
    place = {"class": "tree-symbol", "transform": f"translate({node.x:g} {y:g})"}
    gate = tree.gates.get(node.name)
    event = tree.events.get(node.name)
    if gate is None and node.name not in tree.house and not (event and event.is_undeveloped):
        SubElement(group, "circle", {**place, "r": str(_SYMBOL)})
        return
    if gate is not None:
        shape = "transfer" if node.is_transfer else "any" if gate.kind == "at-least" else gate.kind
    else:
        shape = "house" if node.name in tree.house else "undeveloped"
    SubElement(group, "path", {**place, "d": _SHAPES[shape]})
    if gate is not None and gate.kind == "at-least" and not node.is_transfer:
        _add_text(group, f"{gate.minimum}/{len(gate.inputs)}", node.x, y + 6, "tree-text")


def _describe(tree: FaultTree, node: _Node, state: str) -> str:
    """Return what a screen reader says of a node."""
    gate = tree.gates.get(node.name)
    parts = [node.name, tree.get_title(node.name)]
    if gate is not None:
        parts.append("drawn elsewhere" if node.is_transfer else describe_gate(gate))
    if node.name in tree.house:
        parts.append("set" if tree.house[node.name] else "not set")
    return ", ".join(dict.fromkeys([*parts, state] if state else parts))


def _add_line(group: Element, x1: float, y1: float, x2: float, y2: float) -> None:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    SubElement(
        group, "line", {"class": "tree-line"} | {key: f"{value:g}" for key, value in ends.items()}
    )


def _add_text(group: Element, text: str, x: float, y: float, kind: str) -> None:
    SubElement(group, "text", {"class": kind, "x": f"{x:g}", "y": f"{y:g}"}).text = text


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
