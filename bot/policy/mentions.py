"""Find the attributes, entities and values that rules depend on. Pure.

Rules are in Cedar's JSON form: see https://docs.cedarpolicy.com/policies/json-format.html
"""

from collections.abc import Iterator
from typing import Any, cast


def iterate_mentions(rules_json: object) -> Iterator[str]:
    """Yield attributes by name, such as `runbook`, entities as `Host::lb1`, and whole numbers."""
    if isinstance(rules_json, list):
        for member in cast("list[object]", rules_json):
            yield from iterate_mentions(member)
    elif isinstance(rules_json, dict):
        known = cast("dict[str, Any]", rules_json)
        yield from _iterate_own_mentions(known)
        for name, member in known.items():
            # Annotations are for people and do not affect the decision.
            if name != "annotations":
                yield from iterate_mentions(member)


def _iterate_own_mentions(node: dict[str, Any]) -> Iterator[str]:
    if isinstance(node.get("attr"), str):
        yield node["attr"]
    if isinstance(node.get("type"), str) and isinstance(node.get("id"), str):
        yield f"{node['type']}::{node['id']}"
    if type(node.get("Value")) is int:
        yield str(node["Value"])


def iterate_comparisons(rules_json: object) -> Iterator[tuple[str, str]]:
    """Yield each attribute that is compared with a string, and the string: ("kind", "check")."""
    if isinstance(rules_json, list):
        for member in cast("list[object]", rules_json):
            yield from iterate_comparisons(member)
    elif isinstance(rules_json, dict):
        known = cast("dict[str, Any]", rules_json)
        for operator in ("==", "!=", "contains"):
            sides: Any = known.get(operator) or {}
            values = [
                *_list_string_values(sides.get("left")),
                *_list_string_values(sides.get("right")),
            ]
            for name in [
                *_list_context_attributes(sides.get("left")),
                *_list_context_attributes(sides.get("right")),
            ]:
                yield from ((name, value) for value in values)
        for member in known.values():
            yield from iterate_comparisons(member)


def is_only_compared(rules_json: object, attribute: str) -> bool:
    """Return whether rules use an attribute of the request only to compare it with strings.

    If so, all values that they do not name get the same decision. A pattern (`like`) is no such
    comparison.
    """
    return _count_comparisons(rules_json, attribute) == sum(
        one == attribute for one in iterate_mentions(rules_json)
    )


def _count_comparisons(rules_json: object, attribute: str) -> int:
    if isinstance(rules_json, list):
        return sum(
            _count_comparisons(member, attribute) for member in cast("list[object]", rules_json)
        )
    if not isinstance(rules_json, dict):
        return 0
    known = cast("dict[str, Any]", rules_json)
    count = sum(_count_comparisons(member, attribute) for member in known.values())
    for operator in ("==", "!=", "contains"):
        sides: Any = known.get(operator) or {}
        left, right = sides.get("left"), sides.get("right")
        for one, other in ((left, right), (right, left)):
            count += _list_context_attributes(one) == [attribute] and bool(
                _list_string_values(other)
            )
    return count


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
