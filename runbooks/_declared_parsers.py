"""Parsers of declared runbooks: what a program printed, as values. Pure.

Patterns are matched by RE2, whose time grows with the text alone.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import re2

from connectors.errors import ParseError
from connectors.rows import Rows, parse_each
from runbooks import _declared_cel as cel
from runbooks._declared_format import ReadPart

_MAX_NUMBER = 2**63
# Of a compiled pattern; what a page needs takes a hundredth of it.
_MAX_MEMORY = 1 << 20

Row = dict[str, Any]


@lru_cache(maxsize=2000)
def compile_pattern(pattern: str) -> Any:
    """Return a compiled pattern. Raises ValueError."""
    options = re2.Options()
    options.log_errors, options.max_mem = False, _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error:
        raise ValueError(
            f"{pattern!r} is not a pattern: check its brackets. Look-around and references to "
            "groups are not supported"
        ) from None


def make_parser(part: ReadPart) -> tuple[Callable[[str], Any], cel.Type]:
    """Return the parser of a reading, and the type of its value. Raises ValueError."""
    kind = part.parse or "text"
    pattern = compile_pattern(part.pattern) if part.pattern else None
    if kind in ("match", "lines"):
        _require_groups(pattern, part)
    if kind == "table" and not part.columns:
        raise ValueError("a table needs the names of its `columns`")
    parsers: Mapping[str, tuple[Callable[[str], Any], cel.Type]] = {
        "text": (lambda out: parse_text(out, pattern), cel.STRING),
        "number": (lambda out: parse_number(out.strip(), part), cel.INT),
        "match": (lambda out: _match(out.rstrip("\n"), pattern, part), cel.ROW),
        "lines": (
            lambda out: _parse_rows(out, part, lambda line: _match(line, pattern, part)),
            cel.ROWS,
        ),
        "table": (lambda out: _parse_rows(out, part, lambda line: _split(line, part)), cel.ROWS),
        "pairs": (lambda out: _parse_pairs(out, part), cel.TEXTS),
        "json": (lambda out: _parse_json(out, part), cel.DYN),
    }
    return parsers[kind]


def _require_groups(pattern: Any, part: ReadPart) -> None:
    groups: set[str] = set(pattern.groupindex) if pattern else set()
    if not groups:
        raise ValueError("needs a `pattern` with named groups, such as (?P<name>[a-z]+)")
    if unknown := sorted({*part.numbers} - groups):
        raise ValueError(f"the pattern has no group {unknown[0]}, which `numbers` names")


def parse_text(output: str, pattern: Any) -> str:
    text = output.rstrip("\n")
    if pattern is not None and not pattern.fullmatch(text):
        raise ParseError(f"{text[:200]!r} does not match {pattern.pattern}")
    return text


def parse_number(text: str, part: ReadPart) -> int:
    """Return a whole number within the bounds. Raises ParseError."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise ParseError(f"{text[:80]!r} is not a whole number")
    number = int(text)
    low, high = part.least, part.most
    low = 1 - _MAX_NUMBER if low is None else low
    if not low <= number <= (_MAX_NUMBER - 1 if high is None else high):
        raise ParseError(f"{number} is not a number that is believed here")
    return number


def _match(text: str, pattern: Any, part: ReadPart) -> Row:
    found = pattern.fullmatch(text)
    if found is None:
        raise ParseError(f"{text[:200]!r} does not match {pattern.pattern}")
    return _convert(found.groupdict(), part)


def _split(line: str, part: ReadPart) -> Row:
    cells = line.split(part.separator or None, len(part.columns) - 1)
    if len(cells) != len(part.columns):
        raise ParseError(f"it has {len(cells)} of {len(part.columns)} columns")
    return _convert(dict(zip(part.columns, map(str.strip, cells), strict=True)), part)


def _convert(row: dict[str, str | None], part: ReadPart) -> Row:
    return {
        name: parse_number(text, part) if name in part.numbers and text is not None else text
        for name, text in row.items()
    }


def _parse_rows(output: str, part: ReadPart, parse: Callable[[str], Row]) -> Rows[Row]:
    lines = [line for line in output.splitlines()[part.skip :] if line.strip()]
    return parse_each(lines, parse)


def _parse_pairs(output: str, part: ReadPart) -> dict[str, str]:
    separator, pairs = part.separator or "=", dict[str, str]()
    for line in output.splitlines():
        key, found, value = line.partition(separator)
        if not line.strip():
            continue
        if not found:
            raise ParseError(f"{line[:200]!r} has no {separator!r}")
        if key.strip() in pairs:
            raise ParseError(f"{key.strip()[:80]!r} is there twice")
        pairs[key.strip()] = value.strip()
    return pairs


def _parse_json(output: str, part: ReadPart) -> Any:
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        raise ParseError(f"{output[:200]!r} is not JSON") from None
    for key in part.path.split(".") if part.path else ():
        value = _get_item(value, key, part.path)
    return _freeze(value)


def _get_item(value: Any, key: str, path: str) -> Any:
    try:
        is_list = isinstance(value, list)
        return value[int(key) if is_list else key]
    except (LookupError, ValueError, TypeError):
        raise ParseError(f"the JSON document has nothing at {path}") from None


def _freeze(value: Any) -> Any:
    """Return a JSON value with lists as tuples: state is never changed."""
    if isinstance(value, list):
        return tuple(map(_freeze, cast("Sequence[Any]", value)))
    if isinstance(value, dict):
        return {key: _freeze(each) for key, each in cast("dict[str, Any]", value).items()}
    return value
