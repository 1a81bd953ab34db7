"""Every part of a JSON value, from the outside in."""

from collections.abc import Iterator
from typing import Any, cast


def walk_objects(value: object) -> Iterator[dict[str, Any]]:
    """Yield every object in *value*, however deep."""
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        yield mapping
        inner = list(mapping.values())
    else:
        inner = cast("list[object]", value) if isinstance(value, list) else []
    for one in inner:
        yield from walk_objects(one)


def list_texts(value: object) -> list[str]:
    """Return every text that is shown."""
    return [part["text"] for part in walk_objects(value) if isinstance(part.get("text"), str)]


def list_mentions(value: object) -> list[str]:
    """Return whom rich text mentions."""
    return [part["user_id"] for part in walk_objects(value) if part.get("type") == "user"]
