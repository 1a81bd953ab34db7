"""Hostile values: what no field of a runbook may accept, as a host could misread it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from bot.model import request_form
from runbooks import AnyRunbook

# Values that are no address, though a program somewhere would take each for one.
HOSTILE_ADDRESSES = (
    "203.0.113.9; disable server b/s1",
    "203.0.113.9;",
    "203.0.113.9\ndisable server b/s1",
    "203.0.113.9\r",
    "203.0.113.9\0",
    "203.0.113.9 data.gpc0 0",
    "203.0.113.9 ",
    " 203.0.113.9",
    "203.0.113.9\\",
    "203.0.113.9x",
    "203.0.113.9/32",
    "203.0.113.9:80",
    "999.1.1.1",
    "10.1",
    "1",
    "0x7f000001",
    "010.0.0.1",
    "localhost",
    "www.example.com",
    "-x",
    "",
    "２０３.０.１１３.９",
    "203.0.113.9\u200b",
    "fe80::1%eth0",
    "fe80::1%; disable server b",
    "[::1]",
    "::1::",
    1,
    b"\x01\x02\x03\x04",
    None,
    ["203.0.113.9"],
)

# Times: a date at least, and nothing that is a number of seconds.
HOSTILE_TIMES = (
    "",
    "0",
    "-1",
    "1700000000",
    "now",
    "yesterday",
    "2026-13-01",
    "2026-02-30",
    "2026-03-01T25:00",
    "2026-03-01; id",
    "2026-03-01\n",
    "2026-03-01T00:00 $(id)",
    "0001-01-01T00:00+14:00",
    "9999-12-31T23:59-14:00",
    "２０２６-03-01",
    "2026-03-01\u200b",
    1700000000,
    b"2026-03-01",
    ["2026-03-01"],
    True,
)

# For any text: nothing that a shell, a path, a pattern or an option would be made of, and nothing
# that people cannot see.
HOSTILE_TEXTS = (
    "; id",
    "a; id",
    "$(id)",
    "`id`",
    "${IFS}",
    "a|b",
    "a&b",
    "a>b",
    "a<b",
    "a\nb",
    "a\r\n",
    "a\0",
    "a\x1b[2J",
    "a\u200b",
    "a\u202eb",
    "a\u2028",
    "-x",
    "--help",
    "../../etc/passwd",
    "*",
    "a?",
    "[a]",
    "a'",
    'a"',
    "a\\",
    "ｔａｎｋ",
    "é",
    "#a",
    "~root",
    "x" * 600,
    ["tank"],
    {"name": "tank"},
)

HOSTILE_NUMBERS = (
    "",
    "many",
    "0x10",
    "1e99",
    "5 12",
    "5; id",
    "5\n5",
    "$(id)",
    "-x",
    "--5",
    "５",
    "5\u200b",
    "5kb",
    "inf",
    "nan",
    "-1",
    -1,
    10**12,
    "1" * 5000,
    float("inf"),
    float("nan"),
    [5],
    {"is": 5},
)

HOSTILE_BOOLEANS = (
    "",
    "maybe",
    "2",
    "-1",
    "true; id",
    "true\n",
    "true\0",
    "true\u200b",
    "tru e",
    "ｔrue",
    "$(true)",
    "--true",
    "none",
    2,
    -1,
    [True],
    {"is": True},
)

# What is put around or in the place of a word that there is to choose.
HOSTILE_CHOICES = (
    "",
    "{}\n",
    "{}\0",
    "{}\u200b",
    "{}; id",
    "{} {}",
    " {}",
    "{} ",
    "-{}",
    "$({})",
    "`{}`",
    "{}|id",
    "../{}",
    "{}*",
    "'{}'",
    "something else",
)

# The hostile values for a type of a JSON schema; the first that applies counts.
_BY_SCHEMA: Mapping[str, Sequence[object]] = {
    "ipv4": [each for each in HOSTILE_ADDRESSES if each is not None],
    "date-time": HOSTILE_TIMES,
    "integer": HOSTILE_NUMBERS,
    "number": HOSTILE_NUMBERS,
    "boolean": HOSTILE_BOOLEANS,
    "string": HOSTILE_TEXTS,
}


def get_example_values(runbook: type[AnyRunbook]) -> dict[str, object]:
    """Return the values of a runbook's example. Raises RequestSyntaxError if it is invalid."""
    words = request_form.split_words(runbook.example)
    return request_form.parse_request(runbook, words).model_dump(mode="json")


def list_hostile_values(runbook: type[AnyRunbook], name: str) -> list[object]:
    """Return the hostile values for what a field is for."""
    (field,) = [one for one in request_form.list_form_fields(runbook) if one.name == name]
    kinds = list(_iterate_kinds(runbook.model_json_schema()["properties"][name]))
    if field.choices and "boolean" not in kinds:
        spoilt = (each.replace("{}", word) for word in field.choices for each in HOSTILE_CHOICES)
        return list(dict.fromkeys(spoilt))
    return list(_BY_SCHEMA[next(kind for kind in _BY_SCHEMA if kind in kinds)])


def find_accepted_values(
    runbook: type[AnyRunbook], name: str, values: Mapping[str, object]
) -> list[object]:
    """Return the hostile values that a field accepts beside valid *values* of the others."""
    return [
        value
        for value in list_hostile_values(runbook, name)
        if not is_refused(runbook, name, {**values, name: value})
    ]


def is_refused(runbook: type[AnyRunbook], name: str, values: Mapping[str, object]) -> bool:
    """Return whether these values are invalid because of the field *name*."""
    try:
        runbook.model_validate(values)
    except ValidationError as error:
        return any(
            each["loc"][:1] == (name,) or each["msg"].startswith(f"Value error, {name} ")
            for each in error.errors()
        )
    return False


def _iterate_kinds(field: Mapping[str, Any]) -> Iterator[str]:
    yield from (field[key] for key in ("format", "type") if key in field)
    for one in field.get("anyOf", ()):
        yield from _iterate_kinds(one)
