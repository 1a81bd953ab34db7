"""A task of Ansible with its arguments, for each item of its loop."""

import codecs
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bot.features.importing.ansible.loops import show_unset
from bot.features.importing.ansible.play import LINES, Play, Task, make_scope, name_item, note_use
from bot.features.importing.ansible.template_values import OMIT, ROLE
from bot.features.importing.ansible.templates import Scope
from bot.features.importing.ansible.variables import list_conditions
from bot.features.importing.drafts import Unclear
from bot.features.importing.sources import as_mapping, is_mapping

_VALUE = re.compile(r"\{\{\s*(.*?)\s*\}\}")
# What has no blank outside quotation marks and braces.
_PART = re.compile(
    r"""(?:\{\{.*?\}\}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\.|[^\s"'\\])+""", re.DOTALL
)
_ESCAPED = re.compile(
    r"\\U[0-9a-fA-F]{8}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\N\{[^}]+\}|\\[\\'\"abfnrtv]"
)
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
# What no value of a request can say, so that a default is taken, and asked about.
_PLAIN_ARGUMENTS = frozenset(
    ["state", "enabled", "masked", "mode", "append", "system", "create_home", "createhome",
     "remove", "force", "purge", "create"]
)  # fmt: skip


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


def make_task(
    play: Play,
    line: int,
    name: str,
    module: str,
    raw: Mapping[str, Any],
    item: object,
    number: int = 0,
) -> Task | None:
    """Return a task with its arguments; None for an item of a loop that it leaves out.

    number: of the item, from 0.
    """
    values = {} if item is None else {name_item(raw): item}
    if index := as_mapping(raw.get("loop_control")).get("index_var"):
        values[str(index)] = number
    scope = make_scope(play, raw, values)
    failed_by, conditions = scope.judge(list_conditions(raw))
    if failed_by is not None:
        note_use(play, scope)
        return None
    scope.show_unset = lambda name, default: show_unset(play, scope, name, default)
    short = module.rpartition(".")[2]
    given = raw[module]
    if isinstance(given, str | int) or given is None:
        given = split_arguments(short, str(given or ""))
    if not is_mapping(given):
        raise Unclear(f"the arguments of {short} are not a mapping")
    found = {**as_mapping(raw.get("args")), **as_mapping(given)}
    if short == "user" and found.get("password"):
        # No secret is looked up: the draft asks who sets it.
        found |= {"password": "asked"}
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
    if module in _FREE:
        names = "creates|removes|chdir|executable|warn|stdin"
        found = dict(re.findall(rf"(?:^|\s)({names})=(\S+)", text))
        return {**found, "_": re.sub(rf"(?:^|\s)({names})=\S+", "", text).strip()}
    words = _PART.findall(text)
    if _PART.sub("", text).strip():
        return {"_": text}
    return dict(map(_read_pair, words)) if all("=" in word for word in words) else {"_": text}


def _read_pair(word: str) -> tuple[str, str]:
    """Return the two parts of `a=1` as Ansible reads them, the latter without quotation marks.

    As parse_kv in lib/ansible/parsing/splitter.py.
    """
    word = _ESCAPED.sub(lambda one: codecs.decode(one[0], "unicode-escape"), word)
    name, _, value = word.partition("=")
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return name, value[1:-1] if is_quoted else value
