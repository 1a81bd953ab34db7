"""Every part of a JSON value, from the outside in."""

from collections.abc import Iterator
from typing import Any, cast


def parts(value: object) -> Iterator[dict[str, Any]]:
    """Yield every object in *value*, however deep."""
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        yield mapping
        inner = list(mapping.values())
    else:
        inner = cast("list[object]", value) if isinstance(value, list) else []
    for one in inner:
        yield from parts(one)


def texts(value: object) -> list[str]:
    """Return every text that is shown."""
    return [part["text"] for part in parts(value) if isinstance(part.get("text"), str)]


def mentions(value: object) -> list[str]:
    """Return whom rich text mentions."""
    return [part["user_id"] for part in parts(value) if part.get("type") == "user"]
