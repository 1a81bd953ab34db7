"""Loops of tasks: the values that they go through, and fields for those that a request brings."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from bot.features.importing.ansible.play import (
    Play,
    as_parts,
    list_modules,
    make_scope,
    note_use,
)
from bot.features.importing.ansible.template_filters import flatten, pair_with_parts
from bot.features.importing.ansible.template_values import ROLE, ListItem, is_simple
from bot.features.importing.ansible.templates import Scope
from bot.features.importing.ansible.variables import find_folder
from bot.features.importing.drafts import Unclear, make_name, mark
from bot.features.importing.pages import make_fields
from bot.features.importing.sources import as_list, as_mapping, is_file_within, is_list, is_mapping

_NAMED = re.compile(r"\s*\{\{\s*(\w+)\s*\}\}\s*")
_LOOPS = frozenset(
    ["loop", "with_items", "with_list", "with_dict", "with_nested", "with_cartesian",
     "with_together", "with_flattened", "with_subelements", "with_indexed_items",
     "with_sequence", "with_fileglob", "with_first_found"]
)  # fmt: skip
_OPEN_LIST = re.compile(
    r"\s*\{\{\s*(\w+)\s*(?:\|\s*(?:d|default)\(\s*(?:\[\]|\{\}|omit)(?:\s*,\s*true)?\s*\)\s*)?"
    r"(?:\|\s*(?:dict2items|list|flatten|unique|sort)\s*)*\}\}\s*"
)
_OPEN_PARTS = re.compile(
    r"(\s*\{\{\s*\w+\s*(?:\|\s*(?:d|default)\(\s*\[\]\s*\)\s*)?)\|\s*subelements\(\s*"
    r"['\"](\w+)['\"]\s*(?:,[^()]*)?\)\s*\}\}\s*"
)
_LOOP_OPTIONS = frozenset({"loop_var", "label", "pause", "index_var"})
_SEQUENCE = re.compile(r"(?:(?:start|end|count|stride|format)=\S+(?:\s+|$))+")
_MOST_IN_SEQUENCE = 100
# Of a name that nothing asks for: what it is said to be.
_SECRET_ALONE = re.compile(
    r"(passw(or)?d|passphrase|secret|token|credentials?|(private|api|secret)_?key)$", re.IGNORECASE
)
_SECRET = re.compile("passw|passphrase|secret|token|credential|key", re.IGNORECASE)


def list_items(play: Play, raw: Mapping[str, Any]) -> list[object]:
    """Return what a task is done for: None alone if it has no loop. Raises Unclear."""
    loops = [key for key in raw if key == "loop" or key.startswith("with_")]
    if not loops:
        return [None]
    kind = re.sub(r"^with_(?:ansible\.builtin|community\.general)\.", "with_", loops[0])
    if len(loops) > 1 or kind not in _LOOPS:
        raise Unclear("it loops over values that are not in the file")
    if odd := as_mapping(raw.get("loop_control")).keys() - _LOOP_OPTIONS:
        raise Unclear(f"its loop has {min(odd)}, which is not read")
    scope = make_scope(play, raw, {})
    given = raw[loops[0]]
    if kind in ("with_fileglob", "with_first_found"):
        items = _list_files(play, scope, given, list_modules(raw), is_first=kind.endswith("found"))
    elif (opened := _find_open_item(scope, kind, given)) is not None:
        return [opened]
    else:
        items = _list_given(play, scope, kind, given)
    note_use(play, scope)
    return items


def _find_open_item(scope: Scope, kind: str, given: Any) -> object:
    """Return what stands for any item of a list that only an inventory has; None for another."""
    # Of lists in a list, it takes the items.
    is_wrapped = kind == "with_items" and len(as_list(given)) == 1
    named = _find_open_list(scope, given[0] if is_wrapped else given)
    return ListItem(named) if named else _find_open_parts(scope, kind, given)


def _list_given(play: Play, scope: Scope, kind: str, given: Any) -> list[object]:
    """Return the items that files give. Raises Unclear."""
    try:
        items = scope.evaluate(given)
    except Unclear as unclear:
        items = _fill_items(play, scope, given)
        if items is None:
            raise Unclear(f"it loops over values that are not in the file: {unclear}") from None
    items = _split_items(kind, items)
    if not items and (scope.used or scope.assumed):
        # A list that is empty by default is one that an inventory fills.
        raise Unclear("it loops over values that are not in the file, but in an inventory")
    return items


def _fill_items(play: Play, scope: Scope, loop: object) -> list[Any] | None:
    """Return the items of a list that a file gives, in which values of a request stand.

    None if they are not known. A value that is an item by itself is taken for one, as anywhere.
    """
    named = _NAMED.fullmatch(loop) if isinstance(loop, str) else None
    raw = scope.own.get(named[1], scope.known.get(named[1])) if named else loop
    if not is_list(raw):
        return None
    if named:
        scope.used.add(named[1])
    scope.show_unset = lambda name, default: show_unset(play, scope, name, default)
    try:
        items = as_list(scope.fill(raw))
    except Unclear:
        return None
    return None if any(map(is_list, items)) else items


def _find_open_list(scope: Scope, loop: object) -> str | None:
    """Return what stands for any item of a list that only an inventory has; None for another.

    A list that a file gives items is none, though they may be unclear.
    """
    named = _OPEN_LIST.fullmatch(str(loop))
    if not named or not is_simple(named[1]) or named[1] in scope.assigned or scope.is_open:
        return None
    has_items = scope.own.get(named[1]) or scope.known.get(named[1])
    return None if has_items else f"{named[1]}[]"


def _find_open_parts(scope: Scope, kind: str, loop: object) -> list[ListItem] | None:
    """Return what stands for an item of such a list and one of its parts; None for another."""
    found = _OPEN_PARTS.fullmatch(loop) if isinstance(loop, str) else None
    outer, key = (f"{found[1]}}}}}", found[2]) if found else ("", "")
    if kind == "with_subelements" and len(as_list(loop)) > 1:
        outer, key = as_list(loop)[:2]
    named = _find_open_list(scope, outer) if outer else None
    is_plain = named and re.fullmatch(r"\w+", str(key))
    return [ListItem(f"{named}"), ListItem(f"{named}.{key}[]")] if is_plain else None


def _list_files(
    play: Play, scope: Scope, loop: object, modules: Sequence[str], *, is_first: bool
) -> list[object]:
    """Return files beside the playbook that match patterns, or the first one that there is.

    Raises Unclear.
    """
    base = find_folder(play.file)
    kind = "templates" if modules and modules[0].endswith("template") and is_first else "files"
    found: list[Path] = []
    for each in as_parts(loop):
        name = str(scope.evaluate(each))
        # The folder of the patterns is looked for in these places, and its files then.
        places = [(base / kind / name).parent, (base / name).parent]
        place = next((one for one in places if one.is_dir()), None)
        last = Path(name).name
        if is_mapping(each) or name.startswith("/") or not place or "**" in name or not last:
            raise Unclear("it loops over files that are not beside the playbook")
        matching = [place / last] if is_first else sorted(place.glob(last))
        found += [one for one in matching if is_file_within(one, base)]
    if is_first and not found:
        raise Unclear("it takes the first of files that are not beside the playbook")
    names = [f"{ROLE}/{one.resolve().relative_to(base.resolve())}" for one in found]
    return [*names[:1]] if is_first else [*names]


def _count(value: object) -> list[object]:
    """Return the texts of a sequence of numbers. Raises Unclear."""
    given = dict(one.split("=", 1) for one in str(value).split() if "=" in one)
    is_text = isinstance(value, str) and _SEQUENCE.fullmatch(value)
    try:
        start, stride = int(given.get("start", "1")), int(given.get("stride", "1"))
        end = int(given["end"]) if "end" in given else start + int(given["count"]) - 1
    except (KeyError, ValueError):
        is_text = None
        start, stride, end = 1, 1, 0
    shown = given.get("format", "%d")
    if not is_text or stride < 1 or not re.fullmatch(r"[^%]*%(?:0?[1-9])?d[^%]*", shown):
        raise Unclear("it loops over numbers that are not plain ones")
    numbers = range(start, end + 1, stride)
    if len(numbers) > _MOST_IN_SEQUENCE:
        raise Unclear(f"it loops over more than {_MOST_IN_SEQUENCE} numbers")
    return [shown % one for one in numbers]


def _split_items(loop: str, value: object) -> list[object]:
    """Return what a loop goes through. Raises Unclear."""
    if loop == "with_dict" and is_mapping(value):
        return [{"key": key, "value": each} for key, each in as_mapping(value).items()]
    if loop == "with_sequence":
        return [one for each in as_parts(value) for one in _count(each)]
    if not is_list(value):
        raise Unclear("it loops over values that are not in the file")
    return _SPLITS[loop](as_list(value)) if loop in _SPLITS else as_list(value)


def _flatten_once(parts: Sequence[object]) -> list[object]:
    return [part for one in parts for part in (as_list(one) if is_list(one) else [one])]


def _number(parts: Sequence[object]) -> list[object]:
    return [[at, one] for at, one in enumerate(_flatten_once(parts))]


def _pair_parts(given: Sequence[Any]) -> list[object]:
    """Return each item of a list with each of the parts that one of its keys has."""
    if len(given) not in (2, 3) or not isinstance(given[1], str) or not is_list(given[0]):
        raise Unclear("it loops over values that are not in the file")
    flags = as_mapping(given[2]) if len(given) > 2 else {}
    return pair_with_parts(given[0], given[1], flags.get("skip_missing") is True)


def _join_lists(lists: Sequence[object]) -> list[object]:
    """Return each value of a list with each of the others. Raises Unclear."""
    return [list(one) for one in product(*_read_lists(lists))]


def _pair_lists(lists: Sequence[object]) -> list[object]:
    """Return each value of a list with those in its place of the others. Raises Unclear."""
    parts = _read_lists(lists)
    if len({*map(len, parts)}) > 1:
        raise Unclear("it loops over several values that are not plain lists")
    return [list(one) for one in zip(*parts, strict=True)]


def _read_lists(lists: Sequence[object]) -> list[list[Any]]:
    parts = [*map(as_list, lists)]
    # What is not a list, is empty, or is a list that Ansible would take apart.
    is_odd = not all(parts) or any(is_list(each) for part in parts for each in part)
    if not parts or is_odd:
        raise Unclear("it loops over several values that are not plain lists")
    return parts


_SPLITS: Mapping[str, Callable[[Sequence[Any]], list[object]]] = {
    "with_items": _flatten_once,
    "with_indexed_items": _number,
    "with_flattened": flatten,
    "with_nested": _join_lists,
    "with_cartesian": _join_lists,
    "with_together": _pair_lists,
    "with_subelements": _pair_parts,
}


def _name_value(play: Play, shown: str) -> str:
    """Return the name of a value that a request brings. Raises Unclear if another one has it."""
    field, number = make_name(shown), 1
    # A long one is cut, so that it may be that of another one.
    while field in play.unknown.values() and len(shown) > len(field):
        number += 1
        field = f"{make_name(shown)[:29]}{number}"
    if field in play.unknown.values():
        raise Unclear(f"the request has two values {field}")
    return field


def show_unset(play: Play, scope: Scope, name: str, default: str | None) -> str:
    """Return the mark of a value that a request brings."""
    of_item, base = "[]" in name, name.partition(".")[0]
    prompt = play.prompts.get(name, {})
    if "encrypt" in prompt or (_SECRET if prompt else _SECRET_ALONE).search(name):
        raise Unclear(f"{name} is a secret, which has no place in a request")
    if name not in play.unknown and base not in scope.own and (of_item or is_simple(base)):
        shown = name.replace("[].", " ").replace("[]", " item")
        field = _name_value(play, shown)
        play.unknown[name] = field
        described = {"description": prompt["prompt"]} if prompt.get("prompt") else {}
        (play.pages.fields[field],) = make_fields([(shown, described)]).values()
        if of_item:
            play.pages.items[play.unknown[name]] = name.partition("[]")[0]
    if name not in play.unknown:
        raise Unclear(f"it computes a value: {{{{ {name} }}}}")
    if default or prompt.get("default"):
        default = default or str(prompt["default"])
        given = play.pages.fields.get(play.unknown[name], {"default": ""})
        if given.setdefault("default", default) != default:
            raise Unclear(f"{name} has one default here and another elsewhere")
    return mark(play.unknown[name])
