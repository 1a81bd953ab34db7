"""Filters and tests of Ansible whose meaning is exact.

Source: https://github.com/ansible/ansible/tree/devel/lib/ansible/plugins
"""

import base64
import json
import operator
import os.path
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import StrictUndefined
from jinja2.filters import do_indent

from bot.features.importing.drafts import Unclear
from bot.features.importing.sources import as_list, as_mapping, is_list, is_mapping
from bot.features.importing.template_values import OMIT, Facts

_NUMBERS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}")
_MOST_MATCHED, _MOST_INDENTED = 300, 100
# Filters of Jinja that Ansible leaves as they are.
OF_JINJA = frozenset(
    {
        "abs",
        "capitalize",
        "count",
        "dictsort",
        "first",
        "int",
        "items",
        "join",
        "last",
        "length",
        "list",
        "lower",
        "map",
        "reject",
        "rejectattr",
        "replace",
        "reverse",
        "select",
        "selectattr",
        "sort",
        "string",
        "sum",
        "title",
        "trim",
        "upper",
        "wordcount",
    }
)
_COMMENTS = {
    "plain": ("", "# ", ""),
    "erlang": ("", "% ", ""),
    "c": ("", "// ", ""),
    "cblock": ("/*", " * ", " */"),
    "xml": ("<!--", " - ", "-->"),
}


def as_value(value: Any) -> Any:
    """Return what an expression gave, as plain data."""
    if isinstance(value, StrictUndefined):
        return str(value)
    if value is OMIT or isinstance(value, str | int):
        return value
    if is_mapping(value):
        return {str(key): as_value(each) for key, each in as_mapping(value).items()}
    if value is None or isinstance(value, float | Facts):
        raise Unclear("it computes a value that is neither a text nor a whole number")
    return [as_value(each) for each in value]


def _read_flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str | int):
        raise Unclear("it takes for yes or no what is neither")
    return str(value).lower() in ("yes", "on", "1", "true")


def flatten(value: Any) -> list[Any]:
    """Return the values of lists in lists as one list."""
    if not is_list(value):
        return [value]
    return [part for each in as_list(value) for part in flatten(each)]


def _unique(value: Sequence[Any]) -> list[Any]:
    return [each for at, each in enumerate(value) if each not in value[:at]]


def _combine(first: Mapping[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(first)
    for other in others:
        joined |= other
    return joined


def _comment(value: Any, style: str = "plain", decoration: str = "") -> str:
    """Return a text as a comment, as lib/ansible/plugins/filter/core.py makes it."""
    begin, sign, end = _COMMENTS[style]
    sign = decoration or sign
    lines = [f"{sign}{one}" if one else sign.rstrip() for one in _as_text(value).split("\n")]
    # Ansible leaves the last line as it is.
    lines[-1] = lines[-1] if lines[-1] != sign.rstrip() else sign
    edge = sign.rstrip()
    return "\n".join([*([begin] if begin else []), edge, *lines, edge, *([end] if end else [])])


def _choose(value: Any, yes: Any, no: Any) -> Any:
    return yes if value else no


def _to_items(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value[key]} for key in value]


def _to_json(value: Any) -> str:
    return json.dumps(as_value(value))


def _to_nice_json(value: Any) -> str:
    return json.dumps(as_value(value), sort_keys=True, indent=4, separators=(",", ": "))


def _replace_pattern(text: Any, pattern: str, new: str) -> str:
    return _compile(pattern, _as_text(text)).sub(new, text)


def _compile(pattern: str, text: str) -> re.Pattern[str]:
    """Return a pattern, unless it may take long: by the text, and what repeats in it."""
    repeats = re.findall(r"[*+?{]", pattern)
    if len(text) > _MOST_MATCHED or len(repeats) > 2 or re.search(r"\)[*+?{]", pattern):
        raise Unclear("it has a pattern that may take too long")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Unclear(f"its pattern is none: {error}") from None


def _searches(text: Any, pattern: str) -> bool:
    return _compile(pattern, _as_text(text)).search(text) is not None


def _begins(text: Any, pattern: str) -> bool:
    return _compile(pattern, _as_text(text)).match(text) is not None


_COMPARES: Mapping[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(("==", "=", "eq"), operator.eq),
    **dict.fromkeys(("!=", "<>", "ne"), operator.ne),
    **dict.fromkeys((">", "gt"), operator.gt),
    **dict.fromkeys((">=", "ge"), operator.ge),
    **dict.fromkeys(("<", "lt"), operator.lt),
    **dict.fromkeys(("<=", "le"), operator.le),
}


def _compare_versions(version: Any, other: Any, sign: str = "==") -> bool:
    """Compare versions of numbers alone, which any of Ansible's ways compares alike."""
    both = [str(one) for one in (version, other) if isinstance(one, str | int)]
    if len(both) < 2 or sign not in _COMPARES or not all(map(_NUMBERS.fullmatch, both)):
        raise Unclear("it compares versions that are not of numbers alone")
    first, second = ([*map(int, one.split("."))] for one in both)
    return _COMPARES[sign](first, second)


def _indent(text: Any, width: int = 4, first: Any = False, blank: Any = False) -> str:  # noqa: FBT002 - Jinja calls it so
    if width > _MOST_INDENTED:
        raise Unclear(f"it indents by more than {_MOST_INDENTED} columns")
    return do_indent(_as_text(text), width, first, blank)


def _escape(text: Any) -> str:
    return re.escape(_as_text(text))


def _get_basename(path: Any) -> str:
    return os.path.basename(_as_text(path))  # noqa: PTH119 - as Ansible does


def _get_dirname(path: Any) -> str:
    return os.path.dirname(_as_text(path))  # noqa: PTH120 - as Ansible does


def _quote(text: Any) -> str:
    return shlex.quote(_as_text(text))


def _encode(text: Any) -> str:
    return base64.b64encode(_as_text(text).encode()).decode()


def _decode(text: Any) -> str:
    return base64.b64decode(_as_text(text)).decode()


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unclear("it takes for a text what is none")
    return value


TESTS: Mapping[str, Callable[..., bool]] = {
    "version": _compare_versions,
    "version_compare": _compare_versions,
    "truthy": bool,
    "search": _searches,
    "match": _begins,
}
FILTERS: Mapping[str, Callable[..., Any]] = {
    "bool": _read_flag,
    "flatten": flatten,
    "indent": _indent,
    "unique": _unique,
    "combine": _combine,
    "ternary": _choose,
    "basename": _get_basename,
    "dirname": _get_dirname,
    "quote": _quote,
    "comment": _comment,
    "b64encode": _encode,
    "b64decode": _decode,
    "dict2items": _to_items,
    "regex_escape": _escape,
    "regex_replace": _replace_pattern,
    "to_json": _to_json,
    "to_nice_json": _to_nice_json,
}
