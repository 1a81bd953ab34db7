"""Mentions: what a set of rules looks at and whom it names, so that the rest cannot matter. Pure.

Rules arrive in Cedar's JSON form: see https://docs.cedarpolicy.com/policies/json-format.html
"""

from collections.abc import Iterator
from typing import Any, cast


def list_mentions(tree: object) -> Iterator[str]:
    """Yield attributes by name, such as `runbook`, entities as `Host::lb1`, and whole numbers."""
    if isinstance(tree, list):
        for member in cast("list[object]", tree):
            yield from list_mentions(member)
    elif isinstance(tree, dict):
        known = cast("dict[str, Any]", tree)
        yield from _mentioned(known)
        for name, member in known.items():
            # Annotations are words for people: nothing is decided by them.
            if name != "annotations":
                yield from list_mentions(member)


def _mentioned(known: dict[str, Any]) -> Iterator[str]:
    if isinstance(known.get("attr"), str):
        yield known["attr"]
    if isinstance(known.get("type"), str) and isinstance(known.get("id"), str):
        yield f"{known['type']}::{known['id']}"
    if type(known.get("Value")) is int:
        yield str(known["Value"])


def list_comparisons(tree: object) -> Iterator[tuple[str, str]]:
    """Yield each attribute that is compared with words, and the words: ("kind", "check")."""
    if isinstance(tree, list):
        for member in cast("list[object]", tree):
            yield from list_comparisons(member)
    elif isinstance(tree, dict):
        known = cast("dict[str, Any]", tree)
        for operator in ("==", "!=", "contains"):
            sides: Any = known.get(operator) or {}
            told = [*_values(sides.get("left")), *_values(sides.get("right"))]
            for name in [*_attribute(sides.get("left")), *_attribute(sides.get("right"))]:
                yield from ((name, value) for value in told)
        for member in known.values():
            yield from list_comparisons(member)


def compared_alone(tree: object, name: str) -> bool:
    """Say whether rules look at an attribute of the request only to compare it with words.

    Then all words that they do not name are alike to them; not so with a pattern (`like`).
    """
    return _comparisons(tree, name) == sum(one == name for one in list_mentions(tree))


def _comparisons(tree: object, name: str) -> int:
    if isinstance(tree, list):
        return sum(_comparisons(member, name) for member in cast("list[object]", tree))
    if not isinstance(tree, dict):
        return 0
    known = cast("dict[str, Any]", tree)
    found = sum(_comparisons(member, name) for member in known.values())
    for operator in ("==", "!=", "contains"):
        sides: Any = known.get(operator) or {}
        left, right = sides.get("left"), sides.get("right")
        for one, other in ((left, right), (right, left)):
            found += _attribute(one) == [name] and bool(_values(other))
    return found


def _attribute(side: Any) -> list[str]:
    """Return which attribute of the request one side of a comparison is."""
    known: dict[str, Any] = side or {}
    looked: dict[str, Any] = known.get(".") or {}
    return [looked["attr"]] if looked.get("left") == {"Var": "context"} else []


def _values(side: Any) -> list[str]:
    """Return the words that one side of a comparison is, or holds."""
    known: dict[str, Any] = side or {}
    members: list[dict[str, Any]] = known.get("Set") or [known]
    return [one["Value"] for one in members if isinstance(one.get("Value"), str)]
