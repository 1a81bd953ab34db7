"""Conditions and texts of declared runbooks, in CEL.

CEL (Common Expression Language) cannot loop, keep anything or reach anything: an expression is a
value computed from named values. Its library checks the types of each expression before it is
used, counts iterations and matches patterns in linear time. What is bounded here is what it is
given.

A text holds expressions in braces: `{host} has {count(rows.size(), "row")}`. Two braces are one.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from itertools import chain
from typing import Any, cast

from cel_expr_python import cel

from connectors.amounts import format_count, format_duration, format_rate, format_size
from connectors.errors import ParseError

BOOL, INT, STRING, DYN = cel.Type.BOOL, cel.Type.INT, cel.Type.STRING, cel.Type.DYN
TIME = cel.Type.TIMESTAMP
ROW = cel.Type.Map(STRING, DYN)
ROWS = cel.Type.List(ROW)
TEXTS = cel.Type.Map(STRING, STRING)
Type = cel.Type

MAX_LENGTH = 1000
MAX_ITEMS = 2000
MAX_VALUES = 100_000
MAX_TEXT = 4096
MAX_RESULT = 64 * 1024
MAX_DEPTH = 8
MAX_SUMS = 20
_SCALARS = frozenset({str, int, float, bool})
_MACROS = frozenset({"all", "exists", "exists_one", "filter", "map"})
_QUOTED = r"[rR]?(?:\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
_TEXT = re.compile(_QUOTED, re.DOTALL)
_TOKEN = re.compile(
    rf"{_QUOTED}|\.\s*(?P<call>[A-Za-z_]+)\s*\(|(?P<sign>[()+])",
    re.DOTALL,
)
_MESSAGE = re.compile(r"(?:[A-Z_]+: )?(.{0,200})")
_PLACE = re.compile(r"<input>:1:(\d+): (.*)")


class CelError(ValueError):
    """An expression cannot be used."""


def _join(values: Sequence[object], between: str) -> str:
    return _bound(between.join(map(format_value, values)))


def _list_some(values: Sequence[object], most: int) -> str:
    """Return values with commas, and how many more there are."""
    more = len(values) - most
    shown = _join(values[:most], ", ")
    return f"{shown} and {more:,} more" if more > 0 else shown


def _bound(text: str) -> str:
    if len(text) > MAX_RESULT:
        raise ValueError("the text is too long")
    return text


def _most_common(values: Sequence[str]) -> list[dict[str, object]]:
    return [{"value": value, "count": count} for value, count in Counter(values).most_common()]


def _format_fixed(number: float, digits: int) -> str:
    return f"{number:.{min(digits, 9)}f}"


def _format_size(amount: float) -> str:
    return format_size(int(amount))


def _format_duration(seconds: float) -> str:
    return format_duration(int(seconds))


def _pick_first(values: list[Any], most: int) -> list[Any]:
    return values[:most]


def _rank(rows: list[Any], name: str) -> list[Any]:
    """Return rows with the largest value of this name first."""
    return sorted(rows, key=lambda row: row[name], reverse=True)


def _indent(text: str, depth: int) -> str:
    return "  " * min(depth, 20) + text


def _remove_doubles(values: list[Any]) -> list[Any]:
    return [*dict.fromkeys(values)]


def _flatten(lists: list[list[Any]]) -> list[Any]:
    return [*chain.from_iterable(lists)]


_LIST = cel.Type.List(DYN)
# What texts need and CEL lacks: its name, the types of its arguments, of its result, and the code.
_FUNCTIONS: Sequence[tuple[str, Sequence[Type], Type, Callable[..., Any]]] = (
    ("count", (INT, STRING), STRING, format_count),
    ("count", (INT, STRING, STRING), STRING, format_count),
    ("grouped", (DYN,), STRING, "{:,.0f}".format),
    ("fixed", (DYN, INT), STRING, _format_fixed),
    ("percent", (DYN,), STRING, "{:.0%}".format),
    ("as_size", (DYN,), STRING, _format_size),
    ("as_rate", (DYN,), STRING, format_rate),
    ("as_duration", (DYN,), STRING, _format_duration),
    ("as_date", (TIME,), STRING, "{:%Y-%m-%d}".format),
    ("as_time", (TIME,), STRING, "{:%Y-%m-%d %H:%M} UTC".format),
    ("join", (_LIST, STRING), STRING, _join),
    ("listed", (_LIST, INT), STRING, _list_some),
    ("first", (_LIST, INT), _LIST, _pick_first),
    ("ranked", (_LIST, STRING), _LIST, _rank),
    ("indented", (STRING, INT), STRING, _indent),
    ("split", (STRING, STRING), cel.Type.List(STRING), str.split),
    ("trim", (STRING,), STRING, str.strip),
    ("lower", (STRING,), STRING, str.lower),
    ("least", (_LIST,), DYN, min),
    ("most", (_LIST,), DYN, max),
    ("sum", (_LIST,), DYN, sum),
    ("unique", (_LIST,), _LIST, _remove_doubles),
    ("flat", (_LIST,), _LIST, _flatten),
    ("common", (_LIST,), ROWS, _most_common),
)


def _make_extension() -> cel.CelExtension:
    overloads: dict[str, list[cel.Overload]] = {}
    for name, parameters, result, code in _FUNCTIONS:
        overload = cel.Overload(
            f"{name}_{len(parameters)}", return_type=result, parameters=[*parameters], impl=code
        )
        overloads.setdefault(name, []).append(overload)
    declared = [cel.FunctionDecl(name, its) for name, its in overloads.items()]
    return cel.CelExtension("keyturn", declared)


_EXTENSION = _make_extension()
FUNCTION_NAMES = tuple(dict.fromkeys(name for name, *_ in _FUNCTIONS))


class Scope:
    """The names that expressions may use, with their types."""

    def __init__(self, types: Mapping[str, Type]) -> None:
        self.types = dict(types)
        self._env: Any = None

    def extend(self, **types: Type) -> "Scope":
        return Scope(self.types | types)

    def compile(self, source: str, *wanted: Type) -> "Expression":
        """Return a checked expression of one of the wanted types; of any type without them.

        Raises CelError.
        """
        name = source.strip()
        if name in self.types:
            return _check_type(Expression(source, name, self.types[name]), wanted)
        if name == "true":
            return _check_type(_TRUE, wanted)
        _refuse_costly(source)
        if self._env is None:
            self._env = cel.NewEnv(variables=self.types, extensions=[_EXTENSION])
        try:
            compiled = self._env.compile(source)
        except RuntimeError as error:
            message = _describe(str(error), source, self.types)
            raise CelError(message) from None
        return _check_type(Expression(source, compiled, compiled.return_type()), wanted)


def _check_type(expression: "Expression", wanted: Sequence[Type]) -> "Expression":
    if wanted and expression.type not in (*wanted, DYN):
        names = " or ".join(_name_type(one) for one in wanted)
        raise CelError(
            f"`{expression.source}` is {_name_type(expression.type)}: write an expression that is "
            f"{names}"
        )
    return expression


def _name_type(type_: Type) -> str:
    names = {"BOOL": "true or false", "STRING": "a text", "INT": "a whole number"}
    return names.get(type_.name(), f"of the type {type_.name().lower()}")


def _describe(message: str, source: str, names: Iterable[str]) -> str:
    """Return what CEL says of an expression, and what to do."""
    found = _PLACE.search(message)
    if found is None:
        what = "is nested too deeply" if "recursion" in message else "is not CEL"
        return f"{what}, in `{source}`: write a shorter one, such as `now != value`"
    text = re.sub(r" \(in container ''\)", "", found[2])[:200]
    where = f"character {found[1]}: {{}}, in `{source}`: {{}}"
    if name := re.search(r"undeclared reference to '(.*?)'", text):
        return where.format(f"nothing has the name {name[1]}", _suggest(name[1], names))
    return where.format(text, "correct it there. And is &&, or is ||, not is !")


def _suggest(name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    if near := difflib.get_close_matches(name, known, n=1):
        return f"write `{near[0]}`"
    return f"the names are {', '.join(known[:10])}{' …' if len(known) > 10 else ''}"


def _refuse_costly(source: str) -> None:
    """Refuse what could take more memory than a condition ever needs."""
    if len(source) > MAX_LENGTH:
        raise CelError(f"an expression has at most {MAX_LENGTH} characters: split it with `state`")
    if "\n" in source:
        # After a comment, another line could be taken for a part of a text.
        raise CelError("an expression is one line: write it after >- or in quotation marks")
    inside: list[bool] = []
    sums = 0
    for token in _TOKEN.finditer(source):
        call, sign = token["call"], token["sign"]
        if call == "map" and any(inside):
            raise CelError("`map` within another macro is not allowed: split it with `state`")
        sums += sign == "+"
        if call or sign == "(":
            inside.append(call in _MACROS)
        elif sign == ")" and inside:
            inside.pop()
    if sums > MAX_SUMS:
        raise CelError(f"an expression has at most {MAX_SUMS} signs +: split it with `state`")


@dataclass(frozen=True)
class Expression:
    """A checked expression."""

    source: str
    compiled: Any
    """A text for the value of that name, True for the word itself."""
    type: Type

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return its value. Raises ParseError if these values have none."""
        if self.compiled is True:
            return True
        if isinstance(self.compiled, str):
            return values[self.compiled]
        try:
            result = self.compiled.eval(data=values)
        except RuntimeError as error:
            raise ParseError(
                f"`{self.source}` cannot be computed: {_shorten(str(error))}"
            ) from None
        if result.type().name() == "ERROR":
            reason = _shorten(str(result.plain_value()))
            raise ParseError(f"`{self.source}` cannot be computed: {reason}")
        if _spend(result, MAX_VALUES) < 0:
            raise ParseError(f"`{self.source}` has more than {MAX_VALUES:,} values: read fewer")
        return result.plain_value()

    def is_true(self, values: Mapping[str, Any]) -> bool:
        value = self.evaluate(values)
        if not isinstance(value, bool):
            raise ParseError(f"`{self.source}` is {value!r} and neither true nor false")
        return value


def _spend(value: Any, left: int) -> int:
    """Return how many values are left after this one and those in it; less than 0 for too many.

    A list of lists is small in CEL, which shares them, and takes gigabytes in Python.
    """
    inner: Any = value.value() if hasattr(value, "value") else value
    left -= 1
    parts: Iterable[Any] = ()
    if isinstance(inner, dict):
        parts = cast("dict[str, Any]", inner).values()
    elif isinstance(inner, list):
        parts = cast("list[Any]", inner)
    for part in parts:
        left = _spend(part, left)
        if left < 0:
            break
    return left


_TRUE = Expression("true", True, BOOL)  # noqa: FBT003


def _shorten(message: str) -> str:
    """Return the first line of a message of the library, without its code."""
    found = _MESSAGE.match(message)
    return found[1] if found else ""


def list_names(source: str) -> frozenset[str]:
    """Return the words of an expression outside of its texts."""
    bare = _TEXT.sub(" ", source)
    return frozenset(re.findall(r"(?<![.\w])[a-z_]\w*", bare))


@dataclass(frozen=True)
class Text:
    """A text with expressions in it."""

    parts: tuple[str | Expression, ...]

    def render(self, values: Mapping[str, Any]) -> str:
        """Return the text. Raises ParseError if an expression in it has no value."""
        rendered = [
            part if isinstance(part, str) else _format_part(part, values) for part in self.parts
        ]
        return "".join(rendered)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return tuple(part for part in self.parts if isinstance(part, Expression))


def compile_text(scope: Scope, source: str) -> Text:
    """Return a checked text. Raises CelError."""
    parts = [
        text if not is_expression else scope.compile(text)
        for is_expression, text in split_text(source)
    ]
    return Text(tuple(parts))


def split_text(source: str) -> list[tuple[bool, str]]:
    """Return the parts of a text, and whether each is an expression. Raises CelError."""
    parts: list[tuple[bool, str]] = []
    plain, place = "", 0
    while place < len(source):
        character = source[place]
        if source[place : place + 2] in ("{{", "}}"):
            plain, place = plain + character, place + 2
        elif character == "{":
            end = _find_end(source, place + 1)
            parts += [(False, plain)] if plain else []
            parts.append((True, source[place + 1 : end].strip()))
            plain, place = "", end + 1
        elif character == "}":
            raise CelError("has a } without a {: write }} for the sign itself")
        else:
            plain, place = plain + character, place + 1
    return [*parts, (False, plain)] if plain else parts


def _find_end(source: str, place: int) -> int:
    """Return where the expression that begins at *place* ends: at a } outside of quotes."""
    quote, depth = "", 0
    while place < len(source):
        character = source[place]
        if quote:
            place += character == "\\"
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}":
            if not depth:
                return place
            depth -= 1
        place += 1
    raise CelError("has a { without a }: write {{ for the sign itself")


def _format_part(part: Expression, values: Mapping[str, Any]) -> str:
    value = part.evaluate(values)
    if value is None:
        raise ParseError(f"`{part.source}` has no value")
    return format_value(value)


def format_value(value: object) -> str:
    """Return a value as a text holds it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    if isinstance(value, str | int):
        return str(value)
    raise ParseError(f"{type(value).__name__} cannot be part of a text: name one value of it")


def make_plain(value: object, depth: int = 0) -> Any:
    """Return a value for expressions: a dataclass as a map with its fields and properties.

    A time is a text, of which `timestamp()` makes a time.

    Raises ParseError for more than expressions may be given.
    """
    if depth > MAX_DEPTH:
        raise ParseError("the state is nested too deeply for a declared runbook")
    if value is None or type(value) in _SCALARS:
        return _refuse_large(value)
    return _make_other_plain(value, depth)


def _make_other_plain(value: object, depth: int) -> Any:
    if isinstance(value, Enum):
        return make_plain(value.value, depth)
    if isinstance(value, datetime):
        # CEL's library takes no time within other values.
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return _make_map(((format_value(key), each) for key, each in items), len(items), depth)
    if isinstance(value, list | tuple | set | frozenset):
        listed = cast("Sequence[object]", value)
        _refuse_many(len(listed))
        return [make_plain(each, depth + 1) for each in listed]
    if is_dataclass(value) and not isinstance(value, type):
        parts = _list_parts(value)
        return _make_map(parts, len(parts), depth)
    return _refuse_large(value if isinstance(value, int | float) else str(value))


def _make_map(items: Iterable[tuple[str, object]], count: int, depth: int) -> dict[str, Any]:
    _refuse_many(count)
    return {name: make_plain(each, depth + 1) for name, each in items}


def _refuse_large(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise ParseError(f"a text has more than {MAX_TEXT:,} characters: read less")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ParseError(f"the number {value} is too large for a declared runbook")
    return value


def _refuse_many(count: int) -> None:
    if count > MAX_ITEMS:
        raise ParseError(
            f"{count:,} values are more than a declared runbook reads ({MAX_ITEMS:,}): read fewer"
        )


def _list_parts(value: Any) -> list[tuple[str, object]]:
    parts = [(each.name, getattr(value, each.name)) for each in fields(value)]
    members: Mapping[str, object] = vars(cast("type[object]", type(value)))
    for name, member in members.items():
        if isinstance(member, property) and not name.startswith("_"):
            parts.append((name, getattr(value, name)))
    return parts
