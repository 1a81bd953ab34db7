"""Mentions: what a set of rules looks at and whom it names, so that the rest cannot matter. Pure.

Rules arrive in Cedar's JSON form: see https://docs.cedarpolicy.com/policies/json-format.html
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
            # Annotations are words for people: nothing is decided by them.
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
    """Yield each attribute that is compared with words, and the words: ("kind", "check")."""
    if isinstance(rules_json, list):
        for member in cast("list[object]", rules_json):
            yield from iterate_comparisons(member)
    elif isinstance(rules_json, dict):
        known = cast("dict[str, Any]", rules_json)
        for operator in ("==", "!=", "contains"):
            sides: Any = known.get(operator) or {}
            told = [
                *_list_string_values(sides.get("left")),
                *_list_string_values(sides.get("right")),
            ]
            for name in [
                *_list_context_attributes(sides.get("left")),
                *_list_context_attributes(sides.get("right")),
            ]:
                yield from ((name, value) for value in told)
        for member in known.values():
            yield from iterate_comparisons(member)


def is_only_compared(rules_json: object, attribute: str) -> bool:
    """Say whether rules look at an attribute of the request only to compare it with words.

    Then all words that they do not name are alike to them; not so with a pattern (`like`).
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
    found = sum(_count_comparisons(member, attribute) for member in known.values())
    for operator in ("==", "!=", "contains"):
        sides: Any = known.get(operator) or {}
        left, right = sides.get("left"), sides.get("right")
        for one, other in ((left, right), (right, left)):
            found += _list_context_attributes(one) == [attribute] and bool(
                _list_string_values(other)
            )
    return found


def _list_context_attributes(side: Any) -> list[str]:
    """Return which attribute of the request one side of a comparison is."""
    known: dict[str, Any] = side or {}
    looked: dict[str, Any] = known.get(".") or {}
    return [looked["attr"]] if looked.get("left") == {"Var": "context"} else []


def _list_string_values(side: Any) -> list[str]:
    """Return the words that one side of a comparison is, or holds."""
    known: dict[str, Any] = side or {}
    members: list[dict[str, Any]] = known.get("Set") or [known]
    return [one["Value"] for one in members if isinstance(one.get("Value"), str)]
