"""A task of Ansible with its arguments, for each item of its loop."""

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from bot.features.importing.ansible_play import LINES, Play, Task, make_scope, name_item, note_use
from bot.features.importing.drafts import Unclear, make_name, mark
from bot.features.importing.pages import make_fields
from bot.features.importing.sources import as_list, as_mapping, is_list, is_mapping
from bot.features.importing.template_filters import flatten
from bot.features.importing.template_values import OMIT, ROLE, ListItem, is_simple
from bot.features.importing.templates import Scope
from bot.features.importing.variables import list_conditions

_VALUE = re.compile(r"\{\{\s*(.*?)\s*\}\}")
_NAMED = re.compile(r"\s*\{\{\s*(\w+)\s*\}\}\s*")
_FREE = LINES | {"script"}
_NO_CHANGE: Mapping[str, str] = {
    **dict.fromkeys(
        ("debug", "assert", "fail", "pause", "wait_for", "meta", "ping", "setup", "stat",
         "wait_for_connection", "gather_facts", "slurp", "find", "service_facts",
         "package_facts", "getent", "mount_facts", "validate_argument_spec", "async_status"),
        "it changes nothing on the host",
    ),
    **dict.fromkeys(
        ("set_fact", "include_vars", "register", "add_host", "group_by"),
        "it only computes values: write them under `state`",
    ),
}  # fmt: skip
_LOOPS = frozenset(
    ["loop", "with_items", "with_list", "with_dict", "with_nested", "with_cartesian",
     "with_together", "with_flattened"]
)  # fmt: skip
# What no value of a request can say, so that a default is taken, and asked about.
_PLAIN_ARGUMENTS = frozenset(
    ["state", "enabled", "masked", "mode", "append", "system", "create_home", "createhome",
     "remove", "force", "purge", "create"]
)  # fmt: skip
_OPEN_LIST = re.compile(
    r"\s*\{\{\s*(\w+)\s*(?:\|\s*(?:d|default)\(\s*(?:\[\]|\{\}|omit)(?:\s*,\s*true)?\s*\)\s*)?"
    r"(?:\|\s*(?:dict2items|list|flatten|unique|sort)\s*)*\}\}\s*"
)
_LOOP_OPTIONS = frozenset({"loop_var", "label", "pause"})


def find_no_change(module: str, given: object) -> str:
    """Return why a module with its arguments changes nothing on a host; "" if it may."""
    names = as_mapping(given).keys()
    method = str(as_mapping(given).get("method", "GET"))
    is_reading = module.endswith(("_info", "_facts")) or (
        # Of an address, which may be one of another host.
        (module == "uri" and method == "GET" and names and "dest" not in names)
        or (module in ("systemd", "service", "systemd_service") and names == {"name"})
    )
    return _NO_CHANGE.get(module, _NO_CHANGE["stat"] if is_reading else "")


def list_items(play: Play, raw: Mapping[str, Any]) -> list[object]:
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
    # Of lists in a list, it takes the items.
    is_wrapped = kind == "with_items" and len(as_list(given)) == 1
    if named := _find_open_list(scope, given[0] if is_wrapped else given):
        return [ListItem(named)]
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
    note_use(play, scope)
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
    scope.show_unset = lambda name, default: _show_unset(play, scope, name, default)
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


def _split_items(loop: str, value: object) -> list[object]:
    """Return what a loop goes through. Raises Unclear."""
    if loop == "with_dict" and is_mapping(value):
        return [{"key": key, "value": each} for key, each in as_mapping(value).items()]
    if not is_list(value):
        raise Unclear("it loops over values that are not in the file")
    parts = as_list(value)
    if loop in ("with_nested", "with_cartesian", "with_together"):
        return _join_lists(parts, is_together=loop == "with_together")
    if loop == "with_flattened":
        return flatten(parts)
    if loop != "with_items":
        return parts
    return [part for one in parts for part in (as_list(one) if is_list(one) else [one])]


def _join_lists(lists: Sequence[object], *, is_together: bool) -> list[object]:
    """Return each value of a list with each of the others, or with that in its place."""
    parts = [*map(as_list, lists)]
    # What is not a list, is empty, has no partner, or is a list that Ansible would take apart.
    is_odd = not all(parts) or any(is_list(each) for part in parts for each in part)
    if not parts or is_odd or (is_together and len({*map(len, parts)}) > 1):
        raise Unclear("it loops over several values that are not plain lists")
    return [list(one) for one in (zip(*parts, strict=True) if is_together else product(*parts))]


def make_task(
    play: Play, line: int, name: str, module: str, raw: Mapping[str, Any], item: object
) -> Task | None:
    """Return a task with its arguments; None for an item of a loop that it leaves out."""
    scope = make_scope(play, raw, {} if item is None else {name_item(raw): item})
    failed_by, conditions = scope.judge(list_conditions(raw))
    if failed_by is not None:
        note_use(play, scope)
        return None
    scope.show_unset = lambda name, default: _show_unset(play, scope, name, default)
    short = module.rpartition(".")[2]
    given = raw[module]
    if isinstance(given, str | int) or given is None:
        given = split_arguments(short, str(given or ""))
    if not is_mapping(given):
        raise Unclear(f"the arguments of {short} are not a mapping")
    found = {**as_mapping(raw.get("args")), **as_mapping(given)}
    given = found if find_no_change(short, found) else scope.fill(_fill_plain(scope, found))
    note_use(play, scope)
    if odd := {
        key for key, each in as_mapping(given).items() if key != "src" and ROLE in str(each)
    }:
        raise Unclear(f"its {min(odd)} is a path on the machine where Ansible runs")
    return Task(line, name, module, short, given, raw, scope, conditions)


def _fill_plain(scope: Scope, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with those filled that say what a step does: by their defaults."""
    filled = dict(given)
    for name in given.keys() & _PLAIN_ARGUMENTS:
        # One without a default is a value of the request, which its module may refuse.
        with suppress(Unclear):
            filled[name] = scope.evaluate(given[name])
    return {name: each for name, each in filled.items() if each is not OMIT}


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def split_include(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a file, and the values that are beside it: `x.yml a=1`."""
    name, *rest = _split_words(_VALUE.sub(r"{{\1}}", text)) or [""]
    if not all(re.match(r"\w+=", one) for one in rest):
        return text, {}
    return name, dict(one.split("=", 1) for one in rest)


def split_arguments(module: str, text: str) -> dict[str, Any]:
    """Return the arguments of `module: a=1 b=2`; those of a command have its line as `_`."""
    text = _VALUE.sub(r"{{\1}}", text)
    words = _split_words(text)
    if module in _FREE:
        names = "creates|removes|chdir|executable|warn|stdin"
        found = dict(re.findall(rf"(?:^|\s)({names})=(\S+)", text))
        return {**found, "_": re.sub(rf"(?:^|\s)({names})=\S+", "", text).strip()}
    if not all("=" in word for word in words):
        return {"_": text}
    return dict(word.split("=", 1) for word in words)


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


def _show_unset(play: Play, scope: Scope, name: str, default: str | None) -> str:
    """Return the mark of a value that a request brings."""
    of_item, base = "[]" in name, name.partition(".")[0]
    if name not in play.unknown and base not in scope.own and (of_item or is_simple(base)):
        shown = name.replace("[].", " ").replace("[]", " item")
        field = _name_value(play, shown)
        play.unknown[name] = field
        (play.pages.fields[field],) = make_fields([(shown, {})]).values()
        if of_item:
            play.pages.items[play.unknown[name]] = name.partition("[]")[0]
    if name not in play.unknown:
        raise Unclear(f"it computes a value: {{{{ {name} }}}}")
    if default:
        given = play.pages.fields.get(play.unknown[name], {"default": ""})
        if given.setdefault("default", default) != default:
            raise Unclear(f"{name} has one default here and another elsewhere")
    return mark(play.unknown[name])
