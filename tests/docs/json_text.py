"""JSON for people: a value is on one line if it fits."""

import json
from typing import Any, cast

_WIDTH = 110
_MAX_ITEMS, _MAX_TEXT = 2, 160


def format_json(value: Any, indent: int = 0) -> str:
    """Return a value as JSON. Of long lists and texts only the beginning, and then `…`."""
    value = _shorten(value)
    compact = json.dumps(value, ensure_ascii=False)
    if len(compact) + indent <= _WIDTH or not isinstance(value, dict | list) or not value:
        return compact
    pad = " " * (indent + 2)
    if isinstance(value, list):
        items = [format_json(item, indent + 2) for item in cast("list[Any]", value)]
        brackets = "[]"
    else:
        items = _pack_members(cast("dict[str, Any]", value), indent + 2)
        brackets = "{}"
    inner = f",\n{pad}".join(items)
    return f"{brackets[0]}\n{pad}{inner}\n{' ' * indent}{brackets[1]}"


def _pack_members(value: dict[str, Any], indent: int) -> list[str]:
    """Return lines of members: short ones share a line."""
    lines: list[str] = []
    for name, member in value.items():
        text = f"{json.dumps(name)}: {format_json(member, indent)}"
        text = text if name != "…" else "…"
        if lines and "\n" not in lines[-1] + text and len(lines[-1] + text) + indent < _WIDTH:
            lines[-1] += f", {text}"
        else:
            lines.append(text)
    return lines


def _shorten(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return f"{value[:_MAX_TEXT]}…"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return items if len(items) <= _MAX_ITEMS else [*items[:_MAX_ITEMS], "…"]
    return value
