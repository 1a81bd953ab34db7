"""What Slack sends, read from its raw body. Pure.

Bolt 1.30 takes any form that holds the letters "payload" for a button's or modal's: a slash
command with that word in its text, its channel's or its user's name is then nobody's and ends in a
404. It also takes invalid UTF-8 and broken JSON for faults of the server.
"""

import json
from typing import Any
from urllib.parse import parse_qsl

# As it came from outside: read by bot.slack.payloads, and past that there is none of it.
Body = dict[str, Any]

_MOST_FIELDS = 100


class Malformed(ValueError):
    """The body is neither a form nor JSON as Slack writes them."""


def parse(body: str, content_type: str | None) -> Body:
    """Return the form's fields, the form's `payload`, or the JSON object. Raises Malformed."""
    if not body:
        return {}
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind == "application/json" or body.startswith("{"):
        return _object(body)
    fields = _fields(body)
    return _object(fields["payload"]) if "payload" in fields else fields


def _fields(body: str) -> Body:
    try:
        pairs = parse_qsl(
            body, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError as error:
        raise Malformed("the form cannot be read") from error
    return dict(pairs)


def _object(text: str) -> Body:
    try:
        found = json.loads(text, parse_constant=_refuse)
        # Half a surrogate pair passes as JSON and fails wherever it is written next.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Malformed("the JSON cannot be read") from error
    if not isinstance(found, dict):
        raise Malformed("the JSON is not an object")
    return found  # pyright: ignore[reportUnknownVariableType] - its keys are strings, as in all JSON


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
