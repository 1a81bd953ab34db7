"""What travels between Slack and a bot: JSON read without trusting its shape, and Slack's noes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

# The bot's own blocks, views and messages are kept and handed back exactly as they came.
Json = dict[str, Any]

Fields = Mapping[str, Sequence[str]]


class SlackError(Exception):
    """A call is refused as Slack refuses it: `error` is Slack's code, such as `channel_not_found`.

    messages: what goes into `response_metadata.messages`, one line for each thing that is wrong.
    """

    def __init__(self, error: str, messages: Sequence[str] = ()) -> None:
        super().__init__(error)
        self.error = error
        self.messages = tuple(messages)


def is_record(value: object) -> TypeGuard[Json]:
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def record(value: object) -> Json:
    """Return *value* if it is a JSON object, else an empty one."""
    return value if is_record(value) else {}


def items(value: object) -> list[Any]:
    """Return *value* if it is a JSON list, else an empty one."""
    return value if is_list(value) else []


def records(value: object) -> list[Json]:
    """Return the objects of a JSON list; what is no object becomes an empty one."""
    return [record(item) for item in items(value)]


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def whole(value: object, default: int = 0) -> int:
    """Return a whole number given as such or as digits, else *default*."""
    if isinstance(value, int):
        return value
    try:
        return int(text(value))
    except ValueError:
        return default


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
