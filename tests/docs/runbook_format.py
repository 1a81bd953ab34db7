"""The page of the format of declared runbooks, from its JSON Schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from runbooks import _declared_cel as cel
from runbooks import _declared_yaml as yaml
from runbooks._declared_cel import FUNCTION_NAMES
from runbooks._declared_format import RunbookPage
from runbooks._declared_reads import list_readers

_HEAD = """\
# Format of declared runbooks

Every key of a page, from the schema that `keyturn runbook schema` prints.
[How to write one](runbooks.md#write-a-runbook-in-ten-minutes). [Contents](README.md)

A page is YAML 1.2 without anchors, aliases and tags. *CEL* is an expression in the
[Common Expression Language](https://github.com/google/cel-spec): one line, without side effects. A
*text* may hold CEL in braces: `{host} has {count(rows.size(), "row")}`; two braces are the sign
itself. A *word* of a command may hold `{name}`: a field, or something of `read` or `state` that
has a pattern or bounds. A *time* in what was read is a text, such as `2026-11-21T11:47:09Z`:
`timestamp(unit.started_at)` is the time.
"""
_EXPRESSION, _TEXT = 1000, 4000
_LIMITS_HEAD = """\
A page that is larger is refused when it is checked; what a host printed beyond them is an error
that says so, and nothing is cut off. The tables above have those of each key.
"""
_LIMITS = {
    "a page": f"{yaml.MAX_BYTES // 1024} KiB, {yaml.MAX_DEPTH} mappings and lists in each other",
    "an expression": f"{cel.MAX_LENGTH:,} characters, {cel.MAX_SUMS} signs `+`, no `map` within "
    "another macro",
    "a text with CEL in braces": f"{_TEXT:,} characters",
    "a list or mapping that was read": f"{cel.MAX_ITEMS:,} values, {cel.MAX_DEPTH} of them in "
    "each other",
    "a text that was read": f"{cel.MAX_TEXT:,} characters",
    "a number": "2⁶³ − 1, and no less than −2⁶³",
    "the value of an expression": f"{cel.MAX_VALUES:,} values in all",
    "what `join` and `listed` return": f"{cel.MAX_RESULT // 1024} KiB",
}
_FUNCTIONS = {
    "count": 'a number with a noun: `count(n, "disk")`, `count(n, "entry", "entries")`',
    "grouped": "a number with commas, `1,234`",
    "fixed": "a number with so many decimals: `fixed(load, 2)`",
    "percent": "a share as per cent: `percent(0.5)` is 50%",
    "as_size": "bytes, `1.5 MiB`",
    "as_rate": "bits per second, `1.0 Gbit/s`",
    "as_duration": "seconds, `3 days 7 h`",
    "as_date": "the date of a time",
    "as_time": "a time to the minute, in UTC",
    "join": 'values as one text: `join(names, ", ")`',
    "listed": "the first values with commas, and how many more there are: `listed(names, 5)`",
    "first": "the first values of a list: `first(rows, 10)`",
    "ranked": 'rows with the largest value first: `ranked(rows, "used")`',
    "indented": "a text moved to the right, for rows of a tree",
    "split": 'the parts of a text: `split(options, ",")`',
    "trim": "a text without blanks at its ends",
    "lower": "a text in small letters",
    "least": "the smallest value of a list",
    "most": "the largest value of a list",
    "sum": "the sum of a list",
    "unique": "a list without doubles",
    "flat": "the values of lists in a list as one list",
    "common": "the values of a list as rows with `value` and `count`, the most frequent first",
}
# The parts in the order in which a page has them, and where they stand.
_PARTS = {
    "HostPart": "`host`",
    "FieldPart": "each of `fields`",
    "ReadPart": "each of `read`",
    "StatePart": "each of `state`, instead of an expression",
    "ReasonPart": "each of `never`, and of `refuse` of a page or of a reading",
    "StepPart": "each of `steps`",
    "CommandPart": "`do` and `undo` of a step",
    "NotePart": "each of `notes`, and of `findings` and `notes` of a report",
    "ReportPart": "`report`",
    "TablePart": "`table` of a report",
    "RowPart": "each of `rows` of a table",
    "ProbationPart": "`probation`",
}


def build_format_page() -> str:
    """Return the page, in Markdown."""
    schema = RunbookPage.model_json_schema()
    definitions: Mapping[str, Any] = schema["$defs"]
    assert set(_PARTS) == set(definitions)
    assert set(_FUNCTIONS) == set(FUNCTION_NAMES)
    parts = [_HEAD, "## The page\n", *_build_table(schema)]
    for name, place in _PARTS.items():
        parts += [f"\n## {place[0].upper()}{place[1:]}\n", *_build_table(definitions[name])]
    parts += ["\n## Functions in CEL\n", _FUNCTIONS_HEAD, "| function | returns |", "|---|---|"]
    parts += [f"| `{name}` | {text} |" for name, text in _FUNCTIONS.items()]
    programs = ", ".join(f"`{name}`" for name in list_readers())
    parts += ["\n## Limits\n", _LIMITS_HEAD, "| of | at most |", "|---|---|"]
    parts += [f"| {name} | {text} |" for name, text in _LIMITS.items()]
    parts += ["\n## Programs that `read` may run\n", _READERS_HEAD, f"{programs}\n"]
    return "\n".join(parts)


_FUNCTIONS_HEAD = """\
CEL has operators, `size()`, `startsWith()`, `endsWith()`, `contains()`, `matches()`, `in`,
`a ? b : c`, and for lists `filter`, `map`, `all`, `exists`. These are Keyturn's:
"""
_READERS_HEAD = """\
A check runs without an approval. So each program is allowed with the arguments with which it only
reads. Of `find` these are tests of a name, type, owner, mode, size or time, `!`, `-o`, brackets,
and the actions `-print`, `-print0`, `-printf`, `-ls`, `-prune` and `-quit`. `sed` prints lines:
`[sed, -n, -e, '/^Host/,/^$/p', --, /etc/x]`.
"""


def _build_table(model: Mapping[str, Any]) -> Iterator[str]:
    required = set(model.get("required", ()))
    yield "| key | value | |"
    yield "|---|---|---|"
    for name, field in model["properties"].items():
        must = "**required**. " if name in required else ""
        text = str(field.get("description", "")).replace("\n", " ").replace("|", "\\|")
        limits = " ".join(dict.fromkeys(_list_limits(field)))
        yield f"| `{name}` | {_name_type(field)} | {must}{f'{text} {limits}'.strip()} |"


def _list_limits(field: Mapping[str, Any]) -> Iterator[str]:
    """Yield the limits of a key, but for those that every expression or text has."""
    for one in field.get("anyOf", ()):
        yield from _list_limits(one)
    for key in ("maxItems", "maxProperties"):
        if key in field:
            yield f"At most {field[key]}."
    if field.get("maxLength", _TEXT) not in (_EXPRESSION, _TEXT):
        yield f"At most {field['maxLength']:,} characters."
    if "maximum" in field:
        yield f"{field['minimum']:,} to {field['maximum']:,}."


def _name_type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"] if value)
    if "anyOf" in field:
        names = [_name_type(one) for one in field["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(names))
    if "$ref" in field:
        place = _PARTS[field["$ref"].rpartition("/")[2]].partition(" ")[0].strip("`")
        return f"see {place}" if place != "each" else "a mapping"
    kind = field.get("type", "")
    if kind == "array":
        return f"list: {_name_type(field['items'])}"
    names = {"string": "text", "integer": "number", "boolean": "true or false"}
    return names.get(kind, "by name" if kind == "object" else "")
