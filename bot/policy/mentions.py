"""Mentions: what a set of rules looks at and whom it names, so that the rest cannot matter. Pure.

Rules arrive in Cedar's JSON form: see https://docs.cedarpolicy.com/policies/json-format.html
"""

from collections.abc import Iterator
from typing import Any, cast


def mentions(tree: object) -> Iterator[str]:
    """Yield attributes by name, such as `runbook`, entities as `Host::lb1`, and whole numbers."""
    if isinstance(tree, list):
        for member in cast("list[object]", tree):
            yield from mentions(member)
    elif isinstance(tree, dict):
        known = cast("dict[str, Any]", tree)
        yield from _mentioned(known)
        for name, member in known.items():
            # Annotations are words for people: nothing is decided by them.
            if name != "annotations":
                yield from mentions(member)


def _mentioned(known: dict[str, Any]) -> Iterator[str]:
    if isinstance(known.get("attr"), str):
        yield known["attr"]
    if isinstance(known.get("type"), str) and isinstance(known.get("id"), str):
        yield f"{known['type']}::{known['id']}"
    if type(known.get("Value")) is int:
        yield str(known["Value"])
