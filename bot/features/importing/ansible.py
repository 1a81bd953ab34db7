"""Playbooks and task files of Ansible, which AWX and Semaphore run too.

Format: https://docs.ansible.com/ansible/latest/reference_appendices/playbooks_keywords.html
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.features.importing import changes, file_changes, shell_lines
from bot.features.importing.ansible_modules import MODULES, Given
from bot.features.importing.drafts import Draft, Kind, Origin, Unclear, make_name, mark
from bot.features.importing.pages import Imported, Pages, make_fields
from bot.features.importing.sources import (
    SourceError,
    as_list,
    as_mapping,
    is_false,
    is_list,
    is_list_of_mappings,
    is_mapping,
    is_true,
    read_bytes,
    read_yaml,
)
from bot.features.importing.variables import Variables, is_flag, is_known, read_variables
from runbooks._declared_yaml import Document, KeyPath

_VALUE = re.compile(r"\{\{\s*(.*?)\s*\}\}")
# A variable, and what it is where nothing else sets it.
_WITH_DEFAULT = re.compile(
    r"([A-Za-z_]\w*)\s*\|\s*default\(\s*(?:'([\w./ -]+)'|\"([\w./ -]+)\"|([0-9]+))\s*\)"
)
_LIST = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
# Of Ansible's own configuration, in lib/ansible/config/base.yml.
_CONSTANTS: Mapping[str, str] = {
    "ansible_managed": "Ansible managed",
    "ansible_managed | comment": "#\n# Ansible managed\n#",
}
# A name of its own, and neither a fact of a host nor what a loop or the inventory has.
_SIMPLE = re.compile(r"(?!(?:ansible|group|hostvars|item|omit|role|play)(?:_|s?\b))[A-Za-z_]\w*")
_LINES = frozenset({"command", "shell", "raw"})
_FREE = _LINES | {"script"}
# Keys of a task that are no module.
_KEYWORDS = frozenset(
    """
    name tags register changed_when failed_when become become_user become_method become_flags when
    notify with_items loop loop_control ignore_errors args vars environment delegate_to run_once
    listen no_log check_mode diff retries delay until async poll any_errors_fatal block rescue
    always local_action action ignore_unreachable throttle collections module_defaults connection
    remote_user sudo sudo_user with_dict with_fileglob with_together with_nested with_sequence
    with_subelements with_first_found with_indexed_items
    """.split()  # noqa: SIM905 - fifty names are easier to read this way
)
_LISTS = ("pre_tasks", "tasks", "post_tasks")
_NO_CHANGE: Mapping[str, str] = {
    **dict.fromkeys(
        ("debug", "assert", "fail", "pause", "wait_for", "meta", "ping", "setup", "stat",
         "wait_for_connection", "gather_facts", "slurp", "find", "service_facts",
         "package_facts"),
        "it changes nothing on the host",
    ),
    **dict.fromkeys(
        ("set_fact", "include_vars", "register", "add_host", "group_by"),
        "it only computes values: write them under `state`",
    ),
}  # fmt: skip
_FURTHER = frozenset(
    ["include", "include_tasks", "import_tasks", "include_role", "import_role", "import_playbook"]
)


# What changes how a task runs, and a step cannot say: always, or unless it is false.
_ODD_KEYS = ("environment", "until", "failed_when", "async")
_ODD_FLAGS = ("ignore_errors", "check_mode", "run_once")
# What tasks have of their play, of blocks around them, or of both.
_OF_PLAY = ("become_user", *_ODD_KEYS, *_ODD_FLAGS)
_OF_BLOCK = (*_OF_PLAY, "become", "delegate_to", "tags")
_LOOP_OPTIONS = frozenset({"loop_var", "label", "pause"})
# Modules whose files belong to who runs them.
_OWNED = frozenset({"file", "copy", "template"})


@dataclass
class _Play:
    """What holds for the tasks of a play."""

    file: Path
    pages: Pages
    variables: Variables
    unknown: dict[str, str]
    """The values that a request has to bring, by their names in the file."""
    notified: dict[str, list[tuple[int, str]]] = field(
        default_factory=dict[str, list[tuple[int, str]]]
    )
    """The conditions under which a handler runs, each with the count of pages when it was added;
    "" for one that no page can know."""
    root: bool = False
    login: str = ""
    """Who runs tasks without `become`, if that is known and not root."""
    used: set[str] = field(default_factory=set[str])
    """The defaults of the role that are used."""
    common: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What each task has unless it says otherwise."""


@dataclass
class _Task:
    line: int
    name: str
    key: str
    """The module as the file calls it."""
    module: str
    given: dict[str, Any]
    """The arguments of the module; `_` is a free line."""
    raw: Mapping[str, Any]
    values: Mapping[str, str]
    """Those of the task itself and of its loop."""
    hidden: frozenset[str]
    """The variables that it sets to something that is not known."""


def import_ansible(file: Path, taken: set[str], name: str = "") -> list[Imported]:
    """Return the drafts of a playbook, or of a list of tasks. Raises SourceError."""
    document = read_yaml(file, read_bytes(file))
    items = document.data
    if not is_list_of_mappings(items):
        raise SourceError(f"{file}: line 1: is not a playbook: a list of plays, or of tasks")
    plays = [
        (at, one)
        for at, one in enumerate(as_list(items))
        if "hosts" in one or "import_playbook" in one
    ]
    title = name or file.stem.replace("main", file.absolute().parent.parent.name)
    if not plays:
        return [_import_tasks(file, document, title, items).finish(taken)]
    found: list[Imported] = []
    for number, (at, raw) in enumerate(plays, start=1):
        known = str(raw.get("name") or "")
        shown = known or (title if len(plays) == 1 else f"{title} play{number}")
        found.append(_import_play(file, document, (at,), shown, raw).finish(taken))
    return found


def _import_tasks(file: Path, document: Document, title: str, tasks: list[Any]) -> Pages:
    play = _make_play(file, title, {}, tasks)
    play.root = True
    reason = "the file does not say who runs its tasks: each step is root's"
    play.pages.leave_out(Origin(file, 1, "become"), reason, is_setting=True)
    for at, each in enumerate(tasks):
        _import_task(play, document, (at,), each)
    _question_defaults(play)
    return play.pages


def _import_play(
    file: Path, document: Document, path: KeyPath, title: str, raw: dict[str, Any]
) -> Pages:
    play = _make_play(file, title, raw, raw)
    play.root = is_true(raw.get("become", raw.get("sudo")))
    login = str(raw.get("remote_user", raw.get("user", "the login")))
    play.login = "" if login == "root" else login
    play.common = {key: raw[key] for key in _OF_PLAY if key in raw}

    def find_origin(name: str) -> Origin:
        return Origin(file, document.make_error((*path, name), "").line, name)

    if "import_playbook" in raw:
        reason = "import that file too"
        play.pages.leave_out(find_origin("import_playbook"), reason, is_setting=True)
    for name, reason in (
        ("roles", "import tasks/main.yml of each role too, before this one"),
        ("vars_files", "their values are not read: write those of a host where the draft asks"),
        ("vars_prompt", "the request has fields: the draft asks for their values"),
        ("strategy", "a request for several hosts is one for each"),
        ("serial", "a request for several hosts is one for each"),
        ("connection", "Keyturn reaches hosts by SSH: request it for the host that is meant"),
    ):
        if name in raw:
            play.pages.leave_out(find_origin(name), reason, is_setting=True)
    for name in _LISTS:
        for at, each in enumerate(_list(file, document, (*path, name), raw.get(name))):
            _import_task(play, document, (*path, name, at), each)
    for at, each in enumerate(_list(file, document, (*path, "handlers"), raw.get("handlers"))):
        _import_handler(play, document, (*path, "handlers", at), each)
    return play.pages


def _list(file: Path, document: Document, path: KeyPath, value: object) -> list[Any]:
    if value is not None and not is_list_of_mappings(value):
        line = document.make_error(path, "").line
        raise SourceError(f"{file}: line {line}: {path[-1]} is not a list of tasks")
    return as_list(value)


def _make_play(file: Path, title: str, raw: Mapping[str, Any], tasks: object) -> _Play:
    unknown = {"inventory_hostname": "host", "inventory_hostname_short": "host"}
    pages = Pages(title, f"{title[:150]}.", file, {})
    return _Play(file, pages, read_variables(file, raw, tasks), unknown)


def _question_defaults(play: _Play) -> None:
    """Ask whether the inventory has other values than the defaults of the role that are used."""
    if not play.used:
        return
    shown = ", ".join(sorted(play.used))
    reason = f"they are used, and an inventory may have others: {shown}"
    play.pages.leave_out(Origin(play.file, 1, "defaults of the role"), reason, is_setting=True)
    question = f"TODO: does no inventory set other values than the defaults of {shown}?"
    play.pages.notes.append({"text": question[:1000]})


def _iterate_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in (*as_mapping(value).values(), *as_list(value)):
        yield from _iterate_texts(each)


def _import_task(play: _Play, document: Document, path: KeyPath, raw: dict[str, Any]) -> None:
    line = document.make_error(path, "").line
    if "block" in raw:
        for name in ("block", "always"):
            for at, each in enumerate(_list(play.file, document, (*path, name), raw.get(name))):
                _import_task(play, document, (*path, name, at), _inherit(raw, each))
        if "rescue" in raw:
            reason = "Keyturn stops at a step that fails, and offers the undo of those before"
            play.pages.leave_out(Origin(play.file, line, "rescue"), reason, is_setting=True)
        return
    raw = {**play.common, **raw}
    modules = [key for key in raw if key not in _KEYWORDS]
    if len(modules) != 1:
        _ask(play, Origin(play.file, line, str(raw.get("name") or "task")), "it has no one module")
        return
    module = modules[0]
    name = str(raw.get("name") or module)
    origin = Origin(play.file, line, " ".join(name.split())[:120])
    try:
        items = _list_items(play, raw)
        tasks = [_make_task(play, line, name, module, raw, item) for item in items]
    except Unclear as unclear:
        _import_unclear(play, origin, module, str(unclear))
        return
    _carry_tasks(play, origin, module.rpartition(".")[2], tasks)


def _inherit(block: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task with what it has of the block around it."""
    joined = {
        key: [part for one in (block, task) if key in one for part in _as_parts(one[key])]
        for key in ("when", "notify")
        if key in block or key in task
    }
    values = {**as_mapping(block.get("vars")), **as_mapping(task.get("vars"))}
    own = {key: block[key] for key in _OF_BLOCK if key in block}
    return {**own, **task, **joined, **({"vars": values} if values else {})}


def _as_parts(value: object) -> list[Any]:
    return as_list(value) or [value]


def _import_unclear(play: _Play, origin: Origin, module: str, reason: str) -> None:
    short = module.rpartition(".")[2]
    if short in _NO_CHANGE:
        play.pages.leave_out(origin, _NO_CHANGE[short])
    else:
        _ask(play, origin, reason, f"what the module {short} did at line {origin.line}")


def _ask(play: _Play, origin: Origin, reason: str, what: str = "") -> None:
    play.pages.ask(origin, reason, what or f"what the task of line {origin.line} did")


def _list_items(play: _Play, raw: Mapping[str, Any]) -> list[object]:
    loops = [key for key in raw if key == "loop" or key.startswith("with_")]
    if not loops:
        return [None]
    items = raw[loops[0]]
    if isinstance(items, str) and (name := _LIST.fullmatch(items.strip())):
        # A list that is empty by default is one that an inventory fills.
        items = play.variables.lists.get(name[1]) or items
        _note_use(play, name[1])
    if loops[0] not in ("loop", "with_items") or not is_list(items):
        raise Unclear("it loops over values that are not in the file")
    items = [_fill(play, each, {}) for each in as_list(items)]
    if any("\x01" in text for text in _iterate_texts(items)):
        raise Unclear("it loops over values that are not in the file")
    if any(map(is_list, as_list(items))) or len(loops) > 1:
        raise Unclear("it loops over lists in a list")
    if odd := as_mapping(raw.get("loop_control")).keys() - _LOOP_OPTIONS:
        raise Unclear(f"its loop has {min(odd)}, which is not read")
    return as_list(items)


def _make_task(
    play: _Play, line: int, name: str, module: str, raw: Mapping[str, Any], item: object
) -> _Task:
    own = as_mapping(raw.get("vars"))
    values = {name: str(value) for name, value in own.items() if is_known(value)}
    name_of_item = str(as_mapping(raw.get("loop_control")).get("loop_var") or "item")
    if is_mapping(item):
        parts = as_mapping(item).items()
        values |= {f"{name_of_item}.{key}": str(each) for key, each in parts if is_known(each)}
    elif item is not None:
        values[name_of_item] = str(item)
    hidden = frozenset(own) - values.keys()
    short = module.rpartition(".")[2]
    given = raw[module]
    if isinstance(given, str | int) or given is None:
        given = _split_arguments(short, str(given or ""))
    if not is_mapping(given):
        raise Unclear(f"the arguments of {short} are not a mapping")
    found = {**as_mapping(raw.get("args")), **as_mapping(given)}
    given = {key: _fill(play, value, values, hidden) for key, value in found.items()}
    return _Task(line, name, module, short, given, raw, values, hidden)


def _split_arguments(module: str, text: str) -> dict[str, Any]:
    """Return the arguments of `module: a=1 b=2`; those of a command have its line as `_`."""
    text = _VALUE.sub(r"{{\1}}", text)
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if module in _FREE:
        names = "creates|removes|chdir|executable|warn|stdin"
        found = dict(re.findall(rf"(?:^|\s)({names})=(\S+)", text))
        return {**found, "_": re.sub(rf"(?:^|\s)({names})=\S+", "", text).strip()}
    if not all("=" in word for word in words):
        return {"_": text}
    return dict(word.split("=", 1) for word in words)


def _fill(
    play: _Play, value: Any, values: Mapping[str, str], hidden: frozenset[str] = frozenset()
) -> Any:
    """Return a value with what the file knows, and with marks for what a request brings."""
    if is_list(value):
        return [_fill(play, each, values, hidden) for each in as_list(value)]
    if is_mapping(value):
        return {key: _fill(play, each, values, hidden) for key, each in as_mapping(value).items()}
    if not isinstance(value, str):
        return value
    if "{%" in value:
        raise Unclear("it has a template with logic")

    def fill(found: re.Match[str]) -> str:
        part = _find_value(play, found[1], values, hidden)
        if is_flag(part) and found[0] != value.strip():
            raise Unclear(f"{found[0]} is yes or no, which Ansible writes as True or False")
        return part

    return _VALUE.sub(fill, value)


def _find_value(play: _Play, shown: str, values: Mapping[str, str], hidden: frozenset[str]) -> str:
    """Return the value of what is in braces, or the mark of one that a request brings."""
    parts = _WITH_DEFAULT.fullmatch(shown)
    name, default = (parts[1], parts[2] or parts[3] or parts[4]) if parts else (shown, "")
    if name in values:
        return values[name]
    if name in play.variables.values and name not in hidden:
        _note_use(play, name)
        return play.variables.values[name]
    if shown in _CONSTANTS:
        return _CONSTANTS[shown]
    if name not in play.unknown and name not in hidden and _SIMPLE.fullmatch(name):
        play.unknown[name] = make_name(name)
        play.pages.fields |= make_fields([(name, {})])
    if name not in play.unknown:
        raise Unclear(f"it computes a value: {{{{ {shown[:80]} }}}}")
    if default:
        _set_default(play, name, default)
    return mark(play.unknown[name])


def _set_default(play: _Play, name: str, default: str) -> None:
    given = play.pages.fields.get(play.unknown[name], {"default": ""})
    if given.setdefault("default", default) != default:
        raise Unclear(f"{name} has one default here and another elsewhere")


def _note_use(play: _Play, name: str) -> None:
    if name in play.variables.defaults:
        play.used.add(name)


def _carry_tasks(play: _Play, origin: Origin, module: str, tasks: Sequence[_Task]) -> None:
    if not tasks or all(map(_changes_nothing, tasks)):
        reason = "it only reads, and its result is used by other tasks"
        play.pages.leave_out(origin, reason if tasks else "it loops over no values")
    elif module in ("assert", "fail"):
        _refuse(play, origin, tasks[0])
    elif module in _NO_CHANGE:
        play.pages.leave_out(origin, _NO_CHANGE[module])
    elif reason := _find_no_meaning(play, module, tasks[0]):
        what = f"what the module {module} did at line {origin.line}"
        _notify(play, tasks[0].raw, [""])
        _ask(play, origin, reason, what)
    else:
        _carry_meaning(play, origin, module, tasks)


def _carry_meaning(play: _Play, origin: Origin, module: str, tasks: Sequence[_Task]) -> None:
    if module in _LINES:
        for task in tasks:
            _carry_code(play, origin, task)
    elif module == "apt" and _has_no_package(tasks):
        play.pages.carry_code(origin, "apt-get update", root=True)
    elif _is_restart(play, tasks[0]):
        verb = str(tasks[0].given["state"]).removesuffix("ed")
        note = f"Keyturn has it: request `service {verb} HOST {tasks[0].given.get('name')}`"
        play.pages.add_outcome(Kind.TYPED, origin, note)
    else:
        _carry_typed(play, origin, module, tasks)


def _refuse(play: _Play, origin: Origin, task: _Task) -> None:
    """Ask when the request is refused, where Ansible stopped."""
    asked = _describe_condition(task.raw) or "each time"
    if that := as_mapping(task.raw.get(task.key)).get("that"):
        asked += f", unless {_describe_condition({'when': that})}"
    because = str(task.given.get("fail_msg") or task.given.get("msg") or origin.title)
    question = f"TODO: Ansible stopped here: {asked}. What that was read shows it?"
    play.pages.refusals.append({"when": question[:1000], "because": because[:1000]})
    play.pages.leave_out(origin, "it changes nothing; the draft asks at `refuse` when it stops")


def _find_no_meaning(play: _Play, module: str, task: _Task) -> str:
    """Return why a task has no plain meaning; "" for one that may have."""
    raw = task.raw
    if module in _FURTHER:
        return "it includes another file: import that one too"
    if "delegate_to" in raw or "local_action" in raw:
        return "it runs on another host"
    if module not in _LINES and module not in MODULES:
        return f"the module {module} has no plain meaning here"
    if module in MODULES and (odd := set(_list_odd_keys(raw)) - _may_fail(raw)):
        return f"it has `{min(odd)}`, which is not read"
    if "never" in _list_tags(raw):
        return "its tag `never` has Ansible run it only when it is asked for"
    return _find_other_user(play, module, task)


def _list_odd_keys(raw: Mapping[str, Any]) -> list[str]:
    flags = [key for key in _ODD_FLAGS if key in raw and not is_false(raw[key])]
    return [key for key in _ODD_KEYS if key in raw] + flags


def _may_fail(raw: Mapping[str, Any]) -> set[str]:
    """Return the keys with which Ansible goes on after a task that failed; Keyturn stops."""
    return {"ignore_errors"} | (
        {"failed_when"} if is_false(raw.get("failed_when")) else set[str]()
    )


def _list_tags(raw: Mapping[str, Any]) -> list[str]:
    tags = raw.get("tags")
    return [*map(str, as_list(tags))] or [one.strip() for one in str(tags).split(",")]


def _find_other_user(play: _Play, module: str, task: _Task) -> str:
    """Return why a step, which is by root, would do something else; "" if it would not."""
    raw = task.raw
    user = str(raw.get("become_user", "root"))
    if user != "root":
        return f"it runs as {user}, and a step of Keyturn as its login or as root"
    is_root = is_true(raw.get("become", raw.get("sudo", play.root)))
    if play.login and not is_root and module in _OWNED and "owner" not in task.given:
        return f"it runs as {play.login}, who would own the file: name the owner"
    return ""


def _is_restart(play: _Play, task: _Task) -> bool:
    """Return whether a task is a handler in a file of its own, which restarts a service."""
    return "handlers" in play.file.parts and task.given.get("state") in ("restarted", "reloaded")


def _has_no_package(tasks: Sequence[_Task]) -> bool:
    given = tasks[0].given
    return is_true(given.get("update_cache")) and not given.keys() & {
        "name",
        "pkg",
        "package",
        "upgrade",
    }


def _changes_nothing(task: _Task) -> bool:
    """Return whether a task says that it changes nothing, and its command is known to read."""
    code = str(task.given.get("_", task.given.get("cmd", "")))
    is_read = str(task.raw.get("changed_when", "")).lower() in ("false", "no")
    return is_read and task.module in _LINES and shell_lines.only_reads(code)


def _carry_typed(play: _Play, origin: Origin, module: str, tasks: Sequence[_Task]) -> None:
    conditions: list[str] = []
    question = _describe_condition(tasks[0].raw) if tasks else ""
    is_package = module in ("apt", "yum", "dnf")

    def carry(draft: Draft, task: _Task) -> None:
        def fill(text: str) -> str:
            return str(_fill(play, text, task.values, task.hidden))

        before = len(draft.steps)
        MODULES[module](draft, origin, Given(play.file, task.given, fill))
        for _, _, step in draft.steps[before:]:
            conditions.append("" if question else step["when"])
            if question:
                step["when"] = f"TODO: Ansible asked {question}. Add it to: {step['when']}"[:1000]

    try:
        for task in _split_packages(tasks) if is_package else tasks:
            play.pages.carry(
                origin, lambda draft, task=task: carry(draft, task), is_package=is_package
            )
    except Unclear as unclear:
        _ask(play, origin, str(unclear), f"what the module {module} did at line {origin.line}")
        _notify(play, tasks[0].raw, [""])
        return
    notes = [f"the draft asks at this step for the condition {question}"] if question else []
    if _may_fail(tasks[0].raw) & set(_list_odd_keys(tasks[0].raw)):
        notes.append("Ansible went on if it failed; Keyturn stops there")
    play.pages.add_outcome(Kind.TYPED, origin, "; ".join(notes))
    _notify(play, tasks[0].raw, conditions)


def _split_packages(tasks: Sequence[_Task]) -> Iterator[_Task]:
    """Yield a task for each package, since each has an undo of its own."""
    for task in tasks:
        key = next((key for key in ("name", "pkg", "package") if key in task.given), "")
        given = task.given.get(key) or ""
        names = as_list(given) if is_list(given) else str(given).split(",")
        for name in names:
            yield replace(
                task, given={**task.given, key: str(name).strip()} if key else task.given
            )


def _describe_condition(raw: Mapping[str, Any]) -> str:
    if "when" not in raw:
        return ""
    when = raw["when"]
    shown = " and ".join(map(str, _as_parts(when)))
    return " ".join(shown.split())[:300]


def _notify(play: _Play, raw: Mapping[str, Any], conditions: Sequence[str]) -> None:
    names = raw.get("notify")
    if not names:
        return
    page = len(play.pages.drafts)
    for name in _as_parts(names):
        known = play.notified.setdefault(str(name).lower(), [])
        known += [(page, condition) for condition in conditions]


def _carry_code(play: _Play, origin: Origin, task: _Task) -> None:
    given = dict(task.given)
    code = str(given.pop("_", given.pop("cmd", "")) or shlex.join(as_list(given.pop("argv", []))))
    root = is_true(task.raw.get("become", play.root))
    if "register" in task.raw and shell_lines.only_reads(code):
        play.pages.leave_out(origin, "it only reads, and its result is used by other tasks")
        return
    _notify(play, task.raw, [""])
    path = str(given.pop("chdir", ""))
    creates, removes = str(given.pop("creates", "")), str(given.pop("removes", ""))
    given.pop("warn", None)
    shell = str(given.pop("executable", ""))
    if given or not code:
        _ask(play, origin, "its arguments are not read", f"the line {code[:200]}")
        return
    problems = [f"Ansible had `{key}` for it" for key in _list_odd_keys(task.raw)]
    if question := _describe_condition(task.raw):
        problems.append(f"Ansible asked {question}")
    if shell and not shell.endswith("/sh"):
        problems.append(f"it was written for {shell}, and a host runs it with /bin/sh")
    if task.module == "command" and shell_lines.has_signs(code):
        problems.append("Ansible ran it without a shell: quote what a shell would take otherwise")
    code = f"cd {shlex.quote(path)} && {code}" if path else code
    if creates or removes:
        _carry_guarded(play, origin, code, creates, removes, problems, root=root)
        return
    play.pages.carry_code(origin, code, root=root, problems=problems)


def _carry_guarded(
    play: _Play,
    origin: Origin,
    code: str,
    creates: str,
    removes: str,
    problems: Sequence[str],
    *,
    root: bool,
) -> None:
    """Carry a line over whose effect is that a file is there, or is gone."""

    def carry(draft: Draft) -> None:
        path = creates or removes
        found, _, _ = file_changes.look_for(draft, path)
        draft.claim(path, "a file" if creates else "nothing")
        shell_lines.carry_blind(draft, origin, code, root=root, problems=problems)
        _, _, step = draft.steps.pop()
        is_there = f"{path} is there"
        step |= (
            {"when": f'{found} == ""', "before": "no such file", "after": is_there}
            if creates
            else {"when": f'{found} != ""', "before": is_there, "after": f"{path} is gone"}
        )
        step["no_undo"] = "only the file shows that these lines ran, and not what else they did"
        draft.add_step(origin, step, "Lines of a shell: only a file shows whether they ran.")

    try:
        play.pages.carry(origin, carry)
    except Unclear as unclear:
        _ask(play, origin, str(unclear), f"the line {code[:200]}")
        return
    kind = Kind.BLIND if problems else Kind.TYPED
    play.pages.add_outcome(kind, origin, "only the file that it creates or removes shows it")


def _import_handler(play: _Play, document: Document, path: KeyPath, raw: dict[str, Any]) -> None:
    line = document.make_error(path, "").line
    name = str(raw.get("name") or "")
    origin = Origin(play.file, line, name or "handler")
    names = [name, *_as_parts(raw.get("listen"))]
    notified = [one for each in names for one in play.notified.get(str(each).lower(), [])]
    if not notified:
        play.pages.leave_out(origin, "no task that was carried over notifies it")
        return
    page = len(play.pages.drafts)
    try:
        verb, service = _read_restart(play, line, {**play.common, **raw})
        if not all(count == page and condition for count, condition in notified):
            raise Unclear("a task that notifies it has no condition that is known")
        conditions = [condition for _, condition in notified]
        play.pages.carry(
            origin,
            lambda draft: changes.carry_restart(draft, origin, verb, service, conditions),
        )
    except Unclear as unclear:
        _ask(play, origin, str(unclear), f"what the handler {name} did")
        return
    play.pages.add_outcome(Kind.TYPED, origin, "if a step that notifies it is needed")


def _read_restart(play: _Play, line: int, raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return the verb and the service of a handler. Raises Unclear."""
    name = str(raw.get("name") or "")
    more = Unclear(f"the handler {name} does more than restart a service")
    modules = [key for key in raw if key not in _KEYWORDS]
    if len(modules) != 1 or any(key in raw for key in ("when", "loop", "block")):
        raise more
    task = _make_task(play, line, name, modules[0], raw, None)
    given = dict(task.given)
    state = str(given.pop("state", ""))
    services = [given.pop(key) for key in ("name", "service", "unit") if key in given]
    if task.module not in ("service", "systemd", "systemd_service") or given or len(services) != 1:
        raise more
    if state not in ("restarted", "reloaded"):
        raise more
    if reason := _find_no_meaning(play, task.module, task):
        raise Unclear(reason)
    return state.removesuffix("ed"), str(services[0])
