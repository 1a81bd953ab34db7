"""Rows of what a program lists: those that are understood, and those that are not. No I/O.

A host may print one row that a parser does not know: a new state, a damaged entry, a message
between the rows. The other rows still count, and the odd one is never dropped: reports and plans
include it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar, cast

from connectors.errors import ParseError

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")

_MAX_TEXT = 4000
_UNKNOWN = "its format is unknown"


@dataclass(frozen=True)
class OddRow:
    """A row that a parser does not understand."""

    text: str
    """The beginning of the row, as the program printed it."""
    reason: str
    """What is wrong with it, as a clause."""


class Rows(tuple[T, ...]):
    """The rows that are understood, in order. `odd` has the others."""

    odd: tuple[OddRow, ...]

    def __new__(cls, good: Iterable[T] = (), odd: Iterable[OddRow] = ()) -> "Rows[T]":
        rows = super().__new__(cls, good)
        rows.odd = tuple(odd)
        return rows

    def parse(self, parse: Callable[[T], R | None]) -> "Rows[R]":
        """Parse each row further, and keep the odd ones of both."""
        parsed = parse_each(self, parse)
        return Rows(parsed, [*self.odd, *parsed.odd])


class NamedRows(dict[K, T]):
    """The rows that are understood, by name. `odd` has the others."""

    def __init__(self, good: Iterable[tuple[K, T]] = (), odd: Iterable[OddRow] = ()) -> None:
        super().__init__(good)
        self.odd = tuple(odd)

    def require(self, name: K) -> T:
        """Return the row of this name. Raises ParseError, with the odd rows, if there is none."""
        if name in self:
            return self[name]
        texts = "; ".join(f"{odd.text!r}: {odd.reason}" for odd in self.odd)
        raise ParseError(f"{name} is missing in the output{f', which has {texts}' * bool(texts)}")


def parse_each(rows: Iterable[R], parse: Callable[[R], T | None]) -> Rows[T]:
    """Parse each row by itself.

    parse: returns None for a row that means nothing, such as a heading. A row for which it raises
    ParseError, or an error of a missing or wrong value, is odd.
    """
    good, odd = list[T](), list[OddRow]()
    for row in rows:
        try:
            parsed = parse(row)
        except ParseError as error:
            odd.append(make_odd_row(row, str(error)))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, OSError):
            odd.append(make_odd_row(row))
        else:
            good += [] if parsed is None else [parsed]
    return Rows(good, odd)


def parse_named(rows: Mapping[str, R], parse: Callable[[str, R], T]) -> NamedRows[str, T]:
    """Parse each value of a mapping by itself, with its name."""
    parsed = parse_each(rows.items(), lambda item: (item[0], parse(*item)))
    return NamedRows(parsed, parsed.odd)


def split_blocks(lines: Iterable[str], *, inner: str) -> Iterator[str]:
    """Yield each row of several lines as one text.

    Any other line begins a row, so that the rest of a row with a damaged head is not taken for a
    part of the row before.

    inner: the regular expression of the lines of a row after its first one.
    """
    block = list[str]()
    for line in lines:
        if block and not re.match(inner, line):
            yield "\n".join(block)
            block = []
        if block or line.strip():
            block.append(line)
    if block:
        yield "\n".join(block)


def make_odd_row(row: object, reason: str = _UNKNOWN) -> OddRow:
    """Return a row that is not understood. row: its text, or a value of a JSON document."""
    is_json = isinstance(row, (dict, list, tuple, int, float, bool)) or row is None
    value = cast("Any", row)
    text = json.dumps(value, default=str, ensure_ascii=False) if is_json else str(value)
    lines = (line.strip() for line in text.splitlines())
    return OddRow(" / ".join(line for line in lines if line)[:_MAX_TEXT], reason)


def join_rows(parts: Iterable[Rows[T]], odd: Iterable[OddRow] = ()) -> Rows[T]:
    """Return the rows of several lists as one."""
    parts = [*parts]
    return Rows(
        (row for part in parts for row in part),
        [*odd, *(row for part in parts for row in part.odd)],
    )


def list_odd_rows(value: object) -> Iterator[OddRow]:
    """Yield the odd rows of what a query returned: of rows, or of an object that has some."""
    if isinstance(value, (Rows, NamedRows)):
        yield from cast("Rows[Any]", value).odd
    elif is_dataclass(value):
        for each in fields(value):
            yield from list_odd_rows(getattr(value, each.name))
    elif isinstance(value, tuple):
        for part in cast("tuple[object, ...]", value):
            yield from list_odd_rows(part)
