"""Filters and tests of Ansible whose meaning is exact.

Source: https://github.com/ansible/ansible/tree/devel/lib/ansible/plugins
"""

import base64
import json
import math
import operator
import os.path
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from jinja2 import StrictUndefined
from jinja2.filters import do_indent

from bot.features.importing.ansible.template_values import OMIT, Facts, PartialVersion
from bot.features.importing.drafts import Unclear
from bot.features.importing.sources import as_list, as_mapping, is_list, is_mapping

_NUMBERS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}")
_MOST_MATCHED, _MOST_INDENTED, _MOST_VALUES, _MOST_NUMBERS = 300, 100, 1000, 256
_COMPONENTS = re.compile(r"(\d+|[a-z]+|\.)")
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


def _combine(
    first: Any,
    *others: Any,
    recursive: Any = False,
    list_merge: str = "replace",
) -> dict[str, Any]:
    """Return mappings as one, as lib/ansible/plugins/filter/core.py does."""
    if list_merge != "replace":
        raise Unclear("it joins lists in another way")
    # It also takes a list of mappings.
    parts = [part for one in (first, *others) for part in (one if is_list(one) else [one])]
    if not all(map(is_mapping, parts)):
        raise Unclear("it combines what is no mapping")
    joined = dict[str, Any]()
    for part in parts:
        joined = _join_deep(joined, part) if recursive else joined | part
    return joined


def _join_deep(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _join_deep(as_mapping(first[key]), as_mapping(other[key]))
        for key in first.keys() & other.keys()
        if is_mapping(first[key]) and is_mapping(other[key])
    }
    return {**first, **other, **both}


def _to_mapping(value: Any, key_name: str = "key", value_name: str = "value") -> dict[str, Any]:
    return {one[key_name]: one[value_name] for one in value}


def pair_with_parts(value: Any, key: str, skip_missing: Any = False) -> list[Any]:  # noqa: FBT002 - Ansible calls it so
    """Return each item with each part of it, as `subelements` does."""
    names, found = key.split("."), list[Any]()
    for item in [*as_mapping(value).values()] if is_mapping(value) else value:
        part = item
        for name in names:
            part = as_mapping(part).get(name)
        if part is None and skip_missing:
            continue
        if not is_list(part):
            raise Unclear(f"an item has no list {key}")
        found += [[item, one] for one in as_list(part)]
    return found


def _multiply(*lists: Any) -> list[Any]:
    if math.prod(map(len, lists)) > _MOST_VALUES:
        raise Unclear(f"it is more than {_MOST_VALUES} values")
    return [[*one] for one in product(*lists)]


def _zip(*lists: Any) -> list[Any]:
    return [[*one] for one in zip(*lists, strict=False)]


def _split(text: Any, sign: str | None = None, most: int = -1) -> list[str]:
    return _as_text(text).split(sign, most)


def _split_extension(path: Any) -> list[str]:
    return [*os.path.splitext(_as_text(path))]  # noqa: PTH122 - as Ansible does


def _join_path(paths: Any) -> str:
    return os.path.join(*map(_as_text, [paths] if isinstance(paths, str) else paths))  # noqa: PTH118 - as Ansible does


def _format(text: Any, *values: Any) -> str:
    """Return a text with values in it, of those signs alone that need no width."""
    if not all(one in ("%s", "%d", "%%") for one in re.findall("%.?", _as_text(text))):
        raise Unclear("it writes values in another way than as they are")
    return text % tuple(map(_as_plain, values))


def _as_plain(value: Any) -> str | int:
    if not isinstance(value, str | int):
        raise Unclear("it takes for a text or a number what is none")
    return value


def _require(value: Any, _message: str = "") -> Any:
    str(value)
    return value


def _read_json(text: Any) -> Any:
    return as_value(json.loads(_as_text(text)))


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


def _to_items(
    value: Mapping[str, Any], key_name: str = "key", value_name: str = "value"
) -> list[dict[str, Any]]:
    return [{key_name: key, value_name: value[key]} for key in value]


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


def _compare_versions(
    version: Any,
    other: Any,
    sign: str = "==",
    strict: Any = None,
    version_type: Any = None,
) -> bool:
    """Compare versions: those of numbers alone alike in any way, and others as LooseVersion does.

    Source: lib/ansible/module_utils/compat/version.py
    """
    if sign not in _COMPARES or not all(isinstance(one, str | int) for one in (other, sign)):
        raise Unclear("it compares versions that are none")
    if isinstance(version, PartialVersion):
        return _compare_partly(version, str(other), sign)
    both = [str(one) for one in (version, other) if isinstance(one, str | int)]
    is_plain = all(map(_NUMBERS.fullmatch, both))
    if len(both) < 2 or not all(both) or (not is_plain and (strict or version_type)):
        raise Unclear("it compares versions that are not of numbers alone")
    first, second = map(_split_version, both)
    return _COMPARES[sign](first, second)


def _split_version(text: str) -> list[int | str]:
    parts = [one for one in _COMPONENTS.split(text) if one and one != "."]
    return [int(one) if one.isascii() and one.isdigit() else one for one in parts]


def _compare_partly(version: PartialVersion, other: str, sign: str) -> bool:
    """Compare a version of which the first numbers are known, if they decide it."""
    first, second = version.known, _split_version(other)
    length = min(len(first), len(second))
    if not _NUMBERS.fullmatch(other) or (first[:length] == second[:length] and second[length:]):
        str(version)
    if first[:length] == second and sign not in (">=", "ge", "<", "lt"):
        # One that has no more numbers would be the same.
        str(version)
    return _COMPARES[sign](first, second)


def make_range(*numbers: int) -> range:
    found = range(*numbers)
    if len(found) > _MOST_NUMBERS:
        raise Unclear(f"it is for more than {_MOST_NUMBERS} numbers")
    return found


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
    "items2dict": _to_mapping,
    "subelements": pair_with_parts,
    "product": _multiply,
    "zip": _zip,
    "split": _split,
    "splitext": _split_extension,
    "path_join": _join_path,
    "format": _format,
    "mandatory": _require,
    "from_json": _read_json,
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
