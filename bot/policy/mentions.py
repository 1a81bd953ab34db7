"""Find the attributes, entities and values that rules depend on. Pure.

Rules are in Cedar's JSON form: see https://docs.cedarpolicy.com/policies/json-format.html
"""

from collections.abc import Iterator
from typing import Any, cast

_COMPARISONS = frozenset({"==", "!=", "contains"})


def iterate_nodes(rules_json: object) -> Iterator[dict[str, Any]]:
    """Yield every object in the JSON form of rules, in its order."""
    rest = [rules_json]
    while rest:
        node = rest.pop()
        if isinstance(node, list):
            rest.extend(reversed(cast("list[object]", node)))
        elif isinstance(node, dict):
            known = cast("dict[str, Any]", node)
            yield known
            rest.extend(reversed(known.values()))


def iterate_mentions(rules_json: object) -> Iterator[str]:
    """Yield attributes by name, such as `runbook`, entities as `Host::lb1`, and whole numbers."""
    for node in iterate_nodes(rules_json):
        yield from _iterate_own_mentions(node)


def _iterate_own_mentions(node: dict[str, Any]) -> Iterator[str]:
    if isinstance(node.get("attr"), str):
        yield node["attr"]
    if isinstance(node.get("type"), str) and isinstance(node.get("id"), str):
        yield f"{node['type']}::{node['id']}"
    if type(node.get("Value")) is int:
        yield str(node["Value"])


def iterate_comparisons(rules_json: object) -> Iterator[tuple[str, str]]:
    """Yield each attribute that is compared with a string, and the string: ("kind", "check")."""
    for left, right in _iterate_sides(rules_json):
        values = [*_list_string_values(left), *_list_string_values(right)]
        for name in [*_list_context_attributes(left), *_list_context_attributes(right)]:
            yield from ((name, value) for value in values)


def _iterate_sides(rules_json: object) -> Iterator[tuple[Any, Any]]:
    """Yield both sides of each comparison."""
    for node in iterate_nodes(rules_json):
        for operator in _COMPARISONS & node.keys():
            sides: Any = node[operator] or {}
            yield sides.get("left"), sides.get("right")


def is_only_compared(rules_json: object, attribute: str) -> bool:
    """Return whether rules use an attribute of the request only to compare it with strings.

    If so, all values that they do not name get the same decision. A pattern (`like`) is no such
    comparison.
    """
    compared = sum(
        _list_context_attributes(one) == [attribute] and bool(_list_string_values(other))
        for left, right in _iterate_sides(rules_json)
        for one, other in ((left, right), (right, left))
    )
    return compared == sum(one == attribute for one in iterate_mentions(rules_json))


def _list_context_attributes(side: Any) -> list[str]:
    """Return the attribute of the request that one side of a comparison is."""
    known: dict[str, Any] = side or {}
    access: dict[str, Any] = known.get(".") or {}
    return [access["attr"]] if access.get("left") == {"Var": "context"} else []


def _list_string_values(side: Any) -> list[str]:
    """Return the string that one side of a comparison is, or the strings of its set."""
    known: dict[str, Any] = side or {}
    members: list[dict[str, Any]] = known.get("Set") or [known]
    return [one["Value"] for one in members if isinstance(one.get("Value"), str)]
