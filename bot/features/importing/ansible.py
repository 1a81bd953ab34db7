"""Playbooks and task files of Ansible, which AWX and Semaphore run too.

Format: https://docs.ansible.com/ansible/latest/reference_appendices/playbooks_keywords.html
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
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
    is_file_within,
    is_list,
    is_list_of_mappings,
    is_mapping,
    is_true,
    read_bytes,
    read_yaml,
)
from bot.features.importing.systems import DEFAULT_SYSTEM, SYSTEMS, System
from bot.features.importing.templates import OMIT, Facts, ListItem, Scope, flatten, is_simple
from bot.features.importing.variables import (
    Variables,
    find_file,
    find_folder,
    find_role,
    list_conditions,
    read_variables,
)
from runbooks._declared_yaml import Document, KeyPath

_VALUE = re.compile(r"\{\{\s*(.*?)\s*\}\}")
_LINES = frozenset({"command", "shell", "raw"})
_FREE = _LINES | {"script"}
# Keys of a task that are no module.
_KEYWORDS = frozenset(
    """
    name tags register changed_when failed_when become become_user become_method become_flags when
    notify loop loop_control ignore_errors args vars environment delegate_to run_once
    listen no_log check_mode diff retries delay until async poll any_errors_fatal block rescue
    always local_action action ignore_unreachable throttle collections module_defaults connection
    remote_user sudo sudo_user
    """.split()  # noqa: SIM905 - fifty names are easier to read this way
)
_UNTIL = re.compile(
    r"\s*(?:\w+\s+is\s+(?:succeeded|success|successful|not\s+failed)|not\s+\w+\.failed)\s*"
)
_CHANGED = re.compile(r"\s*(?:(\w+)\s+is\s+changed|(\w+)\.changed)\s*")
_LISTS = ("pre_tasks", "tasks", "post_tasks")
_NO_CHANGE: Mapping[str, str] = {
    **dict.fromkeys(
        ("debug", "assert", "fail", "pause", "wait_for", "meta", "ping", "setup", "stat",
         "wait_for_connection", "gather_facts", "slurp", "find", "service_facts",
         "package_facts", "getent", "mount_facts"),
        "it changes nothing on the host",
    ),
    **dict.fromkeys(
        ("set_fact", "include_vars", "register", "add_host", "group_by"),
        "it only computes values: write them under `state`",
    ),
}  # fmt: skip
_SETTINGS: Mapping[str, str] = {
    "import_playbook": "import that file too",
    "vars_files": "their values are not read: name these files by --vars",
    "vars_prompt": "the request has fields: the draft asks for their values",
    "strategy": "a request for several hosts is one for each",
    "serial": "a request for several hosts is one for each",
    "connection": "Keyturn reaches hosts by SSH: request it for the host that is meant",
}
_FOR_OTHERS = "it changes nothing on these hosts: its condition fails on all of them"
_NOT_RUN = "it does not run with the values that the files give to"
_FURTHER = frozenset(
    ["include", "include_tasks", "import_tasks", "include_role", "import_role", "import_playbook"]
)


# What changes how a task runs, and a step cannot say: always, or unless it is false.
_ODD_KEYS = ("environment", "until", "failed_when", "async")
_ODD_FLAGS = ("ignore_errors", "check_mode", "run_once")
# What tasks have of their play, of blocks around them, or of both.
_OF_PLAY = ("become_user", *_ODD_KEYS, *_ODD_FLAGS)
_OF_BLOCK = (*_OF_PLAY, "become", "delegate_to", "tags")
# When a step is needed: that no page can know.
_UNKNOWN = (0, "")
_NOTIFIED = "whether a task that notifies it was changed"
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
_OF_INCLUDE = frozenset(
    {"name", "tags", "when", "vars", "loop", "with_items", "loop_control", "with_first_found",
     "become", "notify"}
)  # fmt: skip
_OF_ROLE = frozenset({"name", "tags", "when", "vars", "become", "notify"})
_MOST_NESTED = 5
_MOST_INCLUDED = 300
# After all lines.
_LAST = 10**9
# Modules whose files belong to who runs them, unless an argument says to whom.
_OWNED = {"file": "owner", "copy": "owner", "template": "owner", "cron": "user"}


@dataclass
class _Play:
    """What holds for the tasks of a play."""

    file: Path
    pages: Pages
    variables: Variables
    facts: Facts
    values: Mapping[str, Any]
    """What an inventory says of variables, which comes before all else."""
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
    assumed: set[str] = field(default_factory=set[str])
    """The variables that were taken as not set."""
    defaults: set[str] = field(default_factory=set[str])
    """The variables that a role, and maybe an inventory, gives a value."""
    registered: dict[str, list[tuple[int, str]]] = field(
        default_factory=dict[str, list[tuple[int, str]]]
    )
    """As `notified`, by the variable that says whether a task changed something."""
    roles: "list[_Play]" = field(default_factory=list["_Play"])
    """The roles whose tasks were imported, and whose handlers are at the end."""
    around: tuple[Path, ...] = ()
    """The files that include this one, the outermost first."""
    included: list[Path] = field(default_factory=list[Path])
    """Every file that was included so far, by any."""
    items: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those of the loops over files that include this one."""
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
    scope: Scope
    conditions: Sequence[str]
    """What has to hold, where the files do not decide it."""


@dataclass(frozen=True)
class _After:
    """The steps after which a handler runs."""

    conditions: Sequence[str]
    """When they are needed, as far as that is known."""
    is_all: bool
    """Whether it is known of all of them."""


@dataclass(frozen=True)
class Target:
    """The hosts that drafts are for."""

    system: System = SYSTEMS[DEFAULT_SYSTEM]
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the inventory: what its files say of variables."""


def read_target(system: str, files: Sequence[Path]) -> Target:
    """Return the hosts of a system, with the variables of files. Raises SourceError."""
    values = dict[str, Any]()
    for file in files:
        found = read_yaml(file, read_bytes(file)).data
        if not is_mapping(found):
            raise SourceError(f"{file}: line 1: is not a mapping of variables to their values")
        values |= as_mapping(found)
    return Target(SYSTEMS[system], values)


def import_ansible(
    file: Path, taken: set[str], name: str = "", target: Target | None = None
) -> list[Imported]:
    """Return the drafts of a playbook, or of a list of tasks. Raises SourceError."""
    target = target or Target()
    document = read_yaml(file, read_bytes(file))
    items = document.data
    if not is_list_of_mappings(items):
        raise SourceError(f"{file}: line 1: is not a playbook: a list of plays, or of tasks")
    plays = [
        (at, one)
        for at, one in enumerate(as_list(items))
        if "hosts" in one or "import_playbook" in one
    ]
    title = name or (file.absolute().parent.parent.name if file.stem == "main" else file.stem)
    if not plays:
        if not any("block" in one or len(_list_modules(one)) == 1 for one in as_list(items)):
            raise SourceError(
                f"{file}: line 1: is not a playbook: none of its entries is a play, which has "
                "`hosts`, or a task, which has one module"
            )
        return [_import_tasks(file, document, title, items, target).finish(taken)]
    found: list[Imported] = []
    for number, (at, raw) in enumerate(plays, start=1):
        known = str(raw.get("name") or "")
        shown = known or (title if len(plays) == 1 else f"{title} play{number}")
        found.append(_import_play(file, document, (at,), shown, raw, target).finish(taken))
    return found


def _import_tasks(
    file: Path, document: Document, title: str, tasks: list[Any], target: Target
) -> Pages:
    play = _make_play(file, title, {}, tasks, target)
    play.root = True
    reason = "the file does not say who runs its tasks: each step is root's"
    play.pages.leave_out(Origin(file, 1, "become"), reason, is_setting=True)
    for at, each in enumerate(tasks):
        _import_task(play, document, (at,), each)
    if find_role(file):
        play.roles.append(play)
    _import_role_handlers(play)
    _question_defaults(play)
    return play.pages


def _import_play(
    file: Path,
    document: Document,
    path: KeyPath,
    title: str,
    raw: dict[str, Any],
    target: Target,
) -> Pages:
    play = _make_play(file, title, raw, raw, target)
    play.root = is_true(raw.get("become", raw.get("sudo")))
    login = str(raw.get("remote_user", raw.get("user", "the login")))
    play.login = "" if login == "root" else login
    play.common = {key: raw[key] for key in _OF_PLAY if key in raw}

    def find_origin(name: str) -> Origin:
        return Origin(file, document.make_error((*path, name), "").line, name)

    for name, reason in _SETTINGS.items():
        if name in raw:
            play.pages.leave_out(find_origin(name), reason, is_setting=True)
    for name in _LISTS:
        if name == "tasks":
            _import_roles(play, find_origin("roles"), raw)
        for at, each in enumerate(_list(file, document, (*path, name), raw.get(name))):
            _import_task(play, document, (*path, name, at), each)
    _import_role_handlers(play)
    for at, each in enumerate(_list(file, document, (*path, "handlers"), raw.get("handlers"))):
        _import_handler(play, document, (*path, "handlers", at), each)
    _question_defaults(play)
    return play.pages


def _list(file: Path, document: Document, path: KeyPath, value: object) -> list[Any]:
    if value is not None and not is_list_of_mappings(value):
        line = document.make_error(path, "").line
        raise SourceError(f"{file}: line {line}: {path[-1]} is not a list of tasks")
    return as_list(value)


def _make_play(
    file: Path, title: str, raw: Mapping[str, Any], tasks: object, target: Target
) -> _Play:
    unknown = {"inventory_hostname": "host", "inventory_hostname_short": "host"}
    facts = target.system.make_facts()
    variables = read_variables(file, raw, tasks, facts, target.values)
    # What decides which files of variables are read is used wherever one of their values is.
    pages = Pages(title, f"{title[:150]}.", file, {})
    pages.endings.append(lambda draft: target.system.guard(draft, facts.used))
    play = _Play(file, pages, variables, facts, target.values, unknown)
    play.defaults |= variables.defaults
    return play


def _question_defaults(play: _Play) -> None:
    """Ask whether the inventory has other values than those that are used, or has some at all."""
    for names, title, reason, question in (
        (
            play.used & play.defaults,
            "defaults of the role",
            "they are used, and an inventory or a play may have others",
            "does no inventory or play set other values than the defaults of",
        ),
        (
            play.assumed,
            "variables that no file sets",
            "they are taken as not set, and an inventory or a play may set them",
            "does no inventory or play set",
        ),
    ):
        if not names:
            continue
        shown = ", ".join(sorted(names))
        play.pages.leave_out(Origin(play.file, 1, title), f"{reason}: {shown}", is_setting=True)
        play.pages.notes.append({"text": f"TODO: {question} {shown}"[:999] + "?"})


def _list_modules(raw: dict[str, Any]) -> list[str]:
    """Return the keys of a task that say what it does: one, unless it is something else."""
    return [key for key in raw if key not in _KEYWORDS and not key.startswith("with_")]


def _import_task(
    play: _Play,
    document: Document,
    path: KeyPath,
    raw: dict[str, Any],
    after: "_After | None" = None,
) -> None:
    """Import a task. after: of a handler, the steps after which it runs."""
    line = document.make_error(path, "").line
    if "block" in raw:
        _import_block(play, document, path, raw)
        return
    raw = {**play.common, **raw}
    modules = _list_modules(raw)
    if len(modules) != 1:
        _ask(play, Origin(play.file, line, str(raw.get("name") or "task")), "it has no one module")
        return
    module = modules[0]
    name = str(raw.get("name") or module)
    origin = Origin(play.file, line, " ".join(name.split())[:120])
    short = module.rpartition(".")[2]
    scope = _make_scope(play, raw, {})
    failed_by, _ = scope.judge(list_conditions(raw))
    if failed_by is not None:
        _note_use(play, scope)
        names = ", ".join(sorted(failed_by))
        play.pages.leave_out(origin, f"{_NOT_RUN} {names}" if names else _FOR_OTHERS)
        return
    if (
        short in _FURTHER
        and len(play.around) < _MOST_NESTED
        and _include(play, origin, module, raw)
    ):
        return
    try:
        made = [_make_task(play, line, name, module, raw, item) for item in _list_items(play, raw)]
        tasks = [task for task in made if task is not None]
    except Unclear as unclear:
        _import_unclear(play, origin, module, str(unclear))
        return
    _carry_tasks(play, origin, short, tasks, after)


def _import_block(play: _Play, document: Document, path: KeyPath, raw: dict[str, Any]) -> None:
    for name in ("block", "always"):
        for at, each in enumerate(_list(play.file, document, (*path, name), raw.get(name))):
            _import_task(play, document, (*path, name, at), _inherit(raw, each))
    if "rescue" in raw:
        reason = "Keyturn stops at a step that fails, and offers the undo of those before"
        line = document.make_error(path, "").line
        play.pages.leave_out(Origin(play.file, line, "rescue"), reason, is_setting=True)


def _include(play: _Play, origin: Origin, module: str, raw: Mapping[str, Any]) -> bool:
    """Import the tasks of another file or role in the place of a task, if it is known which."""
    if module.endswith("_role"):
        given = as_mapping(raw[module])
        name, part = given.get("name"), given.get("tasks_from", "main")
        if raw.keys() - _OF_ROLE - {module} or given.keys() - {"name", "tasks_from"}:
            return False
        return _import_role(play, origin, str(name), raw, str(part))
    if module.endswith("playbook") or raw.keys() - _OF_INCLUDE - {module}:
        return False
    try:
        found = _list_included(play, module, raw)
    except (Unclear, SourceError):
        return False
    for values, file, document in found:
        inside = replace(play, file=file, items=values, around=(*play.around, play.file))
        _import_inside(inside, origin, raw, document)
    reason = f"its tasks are here in its place: {', '.join(one.name for _, one, _ in found)}"
    play.pages.leave_out(origin, reason, is_setting=True)
    return True


def _list_included(
    play: _Play, module: str, raw: Mapping[str, Any]
) -> list[tuple[Mapping[str, Any], Path, Document]]:
    """Return the files with tasks that a task includes, each with the values of its loop.

    Raises Unclear and SourceError.
    """
    items = [None] if "with_first_found" in raw else _list_items(play, raw)
    name = _name_item(raw)
    plain = {key: raw[key] for key in raw.keys() - {"loop", "with_items", "loop_control"}}
    folder, place = find_folder(play.file), play.file.absolute().parent
    found: list[tuple[Mapping[str, Any], Path, Document]] = []
    for item in items:
        values = {**play.items, **({} if item is None else {name: item})}
        scope = _make_scope(play, raw, values)
        file = find_file(plain, module, folder, scope, place)
        if file is None:
            raise Unclear("it is not known which file it includes")
        if _includes_itself(play, file):
            raise Unclear("it includes itself, as often as only a run knows")
        _note_use(play, scope)
        document = read_yaml(file, read_bytes(file))
        if not is_list_of_mappings(document.data):
            raise Unclear("it includes a file that is no list of tasks")
        found.append((values, file, document))
    return found


def _includes_itself(play: _Play, file: Path) -> bool:
    return any(file.samefile(one) for one in (play.file, *play.around))


def _import_inside(
    inside: _Play, origin: Origin, raw: Mapping[str, Any], document: Document
) -> None:
    """Import the tasks of a file in the place of a task or a role. Raises SourceError."""
    inside.included.append(inside.file)
    if len(inside.included) > _MOST_INCLUDED:
        raise SourceError(
            f"{inside.around[0]}: includes more than {_MOST_INCLUDED} files: "
            "import them one by one"
        )
    inside.pages.within.append(origin.line)
    for at, each in enumerate(as_list(document.data)):
        _import_task(inside, document, (at,), _inherit(raw, each))
    inside.pages.within.pop()


def _import_roles(play: _Play, origin: Origin, raw: Mapping[str, Any]) -> None:
    """Import the roles of a play in their place, before its tasks."""
    for each in as_list(raw.get("roles")):
        given = as_mapping(each)
        name = str(given.get("role", given.get("name", each)))
        own = {key: given[key] for key in given.keys() & _OF_ROLE - {"name"}}
        more = {key: given[key] for key in given.keys() - _OF_ROLE - {"role"}}
        # Keys that no role has are variables.
        own["vars"] = {**more, **as_mapping(own.get("vars"))}
        if more.keys() & _KEYWORDS or not _import_role(play, origin, name, own):
            reason = (
                f"the role {name} is not beside it: import its tasks/main.yml too, before this"
            )
            play.pages.leave_out(origin, reason, is_setting=True)


def _import_role(
    play: _Play, origin: Origin, name: str, raw: Mapping[str, Any], part: str = "main"
) -> bool:
    """Import the tasks of a role that is beside the file; return whether there is one."""
    place = find_role(play.file) or play.file.absolute().parent / "x"
    folders = (place.parent, place.parent / "roles")
    names = (f"{part}.yml", f"{part}.yaml", part)
    files = [
        (each / name, each / name / "tasks" / one)
        for each in folders
        for one in names
        if is_file_within(each / name / "tasks" / one, each)
    ]
    if not files or len(play.around) >= _MOST_NESTED or "{{" in name + part:
        return False
    _, file = files[0]
    if _includes_itself(play, file):
        return False
    try:
        document = read_yaml(file, read_bytes(file))
    except SourceError:
        return False
    if not is_list_of_mappings(document.data):
        return False
    given, own = play.variables, read_variables(file, {}, document.data, play.facts, play.values)
    # What a play says comes before a role's defaults, and its other variables before the play.
    said = {one: given.known[one] for one in given.known.keys() - given.defaults}
    said = {
        one: value for one, value in said.items() if one not in own.known or one in own.defaults
    }
    variables = replace(
        own,
        known={**given.known, **own.known, **said},
        defaults=own.defaults | given.defaults - own.known.keys(),
        assigned=own.assigned | given.assigned,
        is_open=own.is_open or given.is_open,
    )
    variables.known = {
        one: value for one, value in variables.known.items() if one not in variables.assigned
    }
    play.defaults |= variables.defaults
    inside = replace(play, file=file, variables=variables, around=(*play.around, play.file))
    play.roles.append(inside)
    _import_inside(inside, origin, raw, document)
    play.pages.leave_out(origin, f"its tasks are here: the role {name}", is_setting=True)
    return True


def _import_role_handlers(play: _Play) -> None:
    """Import the handlers of roles that are notified, at the end as Ansible runs them."""
    for each in play.roles:
        role = find_role(each.file)
        files = [role / "handlers" / name for name in ("main.yml", "main.yaml")] if role else []
        for file in (one for one in files if role and is_file_within(one, role)):
            try:
                document = read_yaml(file, read_bytes(file))
            except SourceError:
                continue
            inside = replace(each, file=file)
            play.pages.within.append(_LAST)
            for at, raw in enumerate(as_list(document.data)):
                if _list_notified(inside, as_mapping(raw)):
                    _import_handler(inside, document, (at,), as_mapping(raw))
            play.pages.within.pop()


def _list_notified(play: _Play, raw: Mapping[str, Any]) -> list[tuple[int, str]]:
    names = [str(raw.get("name") or ""), *_as_parts(raw.get("listen"))]
    return [one for each in names for one in play.notified.get(str(each).lower(), [])]


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
    if len(loops) > 1 or loops[0] not in _LOOPS:
        raise Unclear("it loops over values that are not in the file")
    if odd := as_mapping(raw.get("loop_control")).keys() - _LOOP_OPTIONS:
        raise Unclear(f"its loop has {min(odd)}, which is not read")
    scope = _make_scope(play, raw, {})
    if named := _find_open_list(scope, raw[loops[0]]):
        return [ListItem(named)]
    try:
        items = scope.evaluate(raw[loops[0]])
    except Unclear as unclear:
        raise Unclear(f"it loops over values that are not in the file: {unclear}") from None
    items = _split_items(loops[0], items)
    if not items and (scope.used or scope.assumed):
        # A list that is empty by default is one that an inventory fills.
        raise Unclear("it loops over values that are not in the file, but in an inventory")
    _note_use(play, scope)
    return items


def _find_open_list(scope: Scope, loop: object) -> str | None:
    """Return what stands for any item of a list that only an inventory has; None for another.

    A list that a file gives items is none, though they may be unclear.
    """
    named = _OPEN_LIST.fullmatch(str(loop))
    if not named or not is_simple(named[1]) or named[1] in scope.assigned or scope.is_open:
        return None
    has_items = scope.own.get(named[1]) or scope.known.get(named[1])
    return None if has_items else f"{named[1]}[]"


def _name_item(raw: Mapping[str, Any]) -> str:
    """Return the name of the variable that a loop sets."""
    return str(as_mapping(raw.get("loop_control")).get("loop_var") or "item")


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


def _make_scope(play: _Play, raw: Mapping[str, Any], items: Mapping[str, Any]) -> Scope:
    """Return what the templates of a task see, without what a request brings."""
    known, own = play.variables, as_mapping(raw.get("vars"))
    items = {**play.items, **items}
    return Scope(known.known, play.facts, known.assigned, known.is_open, own, items)


def _note_use(play: _Play, scope: Scope) -> None:
    play.used |= scope.used
    play.assumed |= scope.assumed


def _make_task(
    play: _Play, line: int, name: str, module: str, raw: Mapping[str, Any], item: object
) -> _Task | None:
    """Return a task with its arguments; None for an item of a loop that it leaves out."""
    scope = _make_scope(play, raw, {} if item is None else {_name_item(raw): item})
    failed_by, conditions = scope.judge(list_conditions(raw))
    if failed_by is not None:
        _note_use(play, scope)
        return None
    scope.show_unset = lambda name, default: _show_unset(play, scope, name, default)
    short = module.rpartition(".")[2]
    given = raw[module]
    if isinstance(given, str | int) or given is None:
        given = _split_arguments(short, str(given or ""))
    if not is_mapping(given):
        raise Unclear(f"the arguments of {short} are not a mapping")
    found = {**as_mapping(raw.get("args")), **as_mapping(given)}
    given = found if short in _NO_CHANGE else scope.fill(_fill_plain(scope, found))
    _note_use(play, scope)
    return _Task(line, name, module, short, given, raw, scope, conditions)


def _fill_plain(scope: Scope, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with those filled that say what a step does: by their defaults."""
    filled = dict(given)
    for name in given.keys() & _PLAIN_ARGUMENTS:
        # One without a default is a value of the request, which its module may refuse.
        with suppress(Unclear):
            filled[name] = scope.evaluate(given[name])
    return {name: each for name, each in filled.items() if each is not OMIT}


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


def _show_unset(play: _Play, scope: Scope, name: str, default: str | None) -> str:
    """Return the mark of a value that a request brings."""
    of_item = "[]" in name
    if name not in play.unknown and name not in scope.own and (of_item or is_simple(name)):
        shown = name.replace("[].", " ").replace("[]", " item")
        if make_name(shown) in play.unknown.values():
            raise Unclear(f"the request has two values {make_name(shown)}")
        play.unknown[name] = make_name(shown)
        play.pages.fields |= make_fields([(shown, {})])
        if of_item:
            play.pages.items[play.unknown[name]] = name.partition("[]")[0]
    if name not in play.unknown:
        raise Unclear(f"it computes a value: {{{{ {name} }}}}")
    if default:
        given = play.pages.fields.get(play.unknown[name], {"default": ""})
        if given.setdefault("default", default) != default:
            raise Unclear(f"{name} has one default here and another elsewhere")
    return mark(play.unknown[name])


def _carry_tasks(
    play: _Play,
    origin: Origin,
    module: str,
    tasks: Sequence[_Task],
    after: "_After | None" = None,
) -> None:
    """Carry a task over for each item of its loop. after: as of `_import_task`."""
    for task in tasks if after and not after.is_all else ():
        task.conditions = [*task.conditions, _NOTIFIED]
    if not tasks or all(map(_changes_nothing, tasks)):
        reason = "it only reads, and its result is used by other tasks"
        play.pages.leave_out(origin, reason if tasks else "it loops over no values")
    elif module in ("assert", "fail") or _ends_play(module, tasks[0]):
        _refuse(play, origin, tasks[0])
    elif module in _NO_CHANGE:
        play.pages.leave_out(origin, _NO_CHANGE[module])
    elif reason := _find_no_meaning(play, module, tasks[0]):
        what = f"what the module {module} did at line {origin.line}"
        _notify(play, tasks[0].raw, [_UNKNOWN])
        _ask(play, origin, reason, what)
    elif after is None and module not in _LINES and _is_restart(play, tasks[0]):
        verb = str(tasks[0].given["state"]).removesuffix("ed")
        note = f"Keyturn has it: request `service {verb} HOST {tasks[0].given.get('name')}`"
        play.pages.add_outcome(Kind.TYPED, origin, note)
    else:
        changed = after.conditions if after else _take_changed(play, tasks)
        _carry_meaning(play, origin, module, tasks, changed)


def _carry_meaning(
    play: _Play, origin: Origin, module: str, tasks: Sequence[_Task], changed: Sequence[str]
) -> None:
    if module in _LINES:
        for task in tasks:
            _carry_code(play, origin, task, changed)
    elif module == "apt" and _has_no_package(tasks):
        _carry_update(play, origin, tasks[0], changed)
    else:
        _carry_typed(play, origin, module, tasks, changed)


def _ends_play(module: str, task: _Task) -> bool:
    return module == "meta" and str(task.given.get("_", "")).startswith("end_")


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
    """Return the keys with which Ansible goes on, or tries again, after a task that failed."""
    return {"ignore_errors"} | {
        key
        for key, plain in (
            ("failed_when", is_false(raw.get("failed_when"))),
            ("until", _UNTIL.fullmatch(str(raw.get("until")))),
        )
        if plain
    }


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
    owner = _OWNED.get(module)
    if play.login and not is_root and owner and owner not in task.given:
        return f"it runs as {play.login}, who would own the file: name the {owner}"
    return ""


def _is_restart(play: _Play, task: _Task) -> bool:
    """Return whether a task is a handler in a file of its own, which restarts a service."""
    return "handlers" in play.file.parts and task.given.get("state") in ("restarted", "reloaded")


def _carry_update(play: _Play, origin: Origin, task: _Task, changed: Sequence[str]) -> None:
    """Carry over that lists of packages are read again: alone, nothing shows when."""
    code, question = "apt-get update", _join_conditions([task])
    if changed:
        guard = _Guard("", "", question, changed)
        _carry_guarded(play, origin, code, guard, [], root=True)
    else:
        play.pages.carry_code(origin, code, root=True, condition=question)


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


def _carry_typed(
    play: _Play, origin: Origin, module: str, tasks: Sequence[_Task], changed: Sequence[str]
) -> None:
    conditions: list[tuple[int, str]] = []
    page, question = len(play.pages.drafts), _join_conditions(tasks)
    is_package = module in ("apt", "yum", "dnf", "package")

    def carry(draft: Draft, task: _Task) -> None:
        def fill(text: str, *, lstrip: bool) -> str:
            filled = task.scope.fill_file(text, lstrip=lstrip)
            _note_use(play, task.scope)
            return filled

        if changed:
            _stay_on(play, page)
        is_asked = _NOTIFIED in question
        given = Given(play.file, task.given, fill, play.facts, changed, is_asked=is_asked)
        found = draft.ask_condition(
            question, lambda: MODULES[module](draft, origin, given), changed
        )
        # Its items may be on several pages.
        conditions.extend((len(play.pages.drafts), one) for one in found)

    try:
        for task in _split_packages(tasks) if is_package else tasks:
            play.pages.carry(
                origin, lambda draft, task=task: carry(draft, task), is_package=is_package
            )
    except Unclear as unclear:
        _ask(play, origin, str(unclear), f"what the module {module} did at line {origin.line}")
        _notify(play, tasks[0].raw, [_UNKNOWN])
        return
    notes = [f"the draft asks at this step for the condition {question}"] if question else []
    if _may_fail(tasks[0].raw) & set(_list_odd_keys(tasks[0].raw)):
        notes.append("Ansible went on or tried again if it failed; Keyturn stops there")
    play.pages.add_outcome(Kind.TYPED, origin, "; ".join(notes))
    _notify(play, tasks[0].raw, conditions)


def _stay_on(play: _Play, page: int) -> None:
    """Refuse to follow the steps of another page, whose readings this one does not have."""
    if len(play.pages.drafts) != page:
        raise Unclear("the steps that it follows are on the page before this one")


def _take_changed(play: _Play, tasks: Sequence[_Task]) -> list[str]:
    """Return when the tasks change something after which these run, if that is all they ask.

    Those conditions of the tasks are then known.
    """
    known: list[str] = []
    for name in {one[1] or one[2] for task in tasks for each in task.conditions
                 if (one := _CHANGED.fullmatch(each))}:  # fmt: skip
        found = play.registered.get(name, [])
        page = len(play.pages.drafts)
        if known or not found or not all(at == page and one for at, one in found):
            return []
        known = [one for _, one in found]
    if known:
        for task in tasks:
            task.conditions = [one for one in task.conditions if not _CHANGED.fullmatch(one)]
    return known


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


def _join_conditions(tasks: Sequence[_Task]) -> str:
    """Return what has to hold for a step, as far as the files do not decide it."""
    parts = dict.fromkeys(one for task in tasks for one in task.conditions)
    return _describe_condition({"when": [*parts]}) if parts else ""


def _describe_condition(raw: Mapping[str, Any]) -> str:
    if "when" not in raw:
        return ""
    when = raw["when"]
    shown = " and ".join(map(str, _as_parts(when)))
    return " ".join(shown.split())[:300]


def _notify(play: _Play, raw: Mapping[str, Any], conditions: Sequence[tuple[int, str]]) -> None:
    """Keep when the steps of a task are needed, for what it notifies and registers."""
    if "register" in raw:
        play.registered.setdefault(str(raw["register"]), []).extend(conditions)
    for name in filter(None, _as_parts(raw.get("notify"))):
        play.notified.setdefault(str(name).lower(), []).extend(conditions)


def _carry_code(play: _Play, origin: Origin, task: _Task, changed: Sequence[str]) -> None:
    given = dict(task.given)
    code = str(given.pop("_", given.pop("cmd", "")) or shlex.join(as_list(given.pop("argv", []))))
    root = is_true(task.raw.get("become", play.root))
    if "register" in task.raw and shell_lines.only_reads(code):
        play.pages.leave_out(origin, "it only reads, and its result is used by other tasks")
        return
    _notify(play, task.raw, [_UNKNOWN])
    path = str(given.pop("chdir", ""))
    creates, removes = str(given.pop("creates", "")), str(given.pop("removes", ""))
    given.pop("warn", None)
    shell = str(given.pop("executable", ""))
    if given or not code:
        _ask(play, origin, "its arguments are not read", f"the line {code[:200]}")
        return
    problems = [f"Ansible had `{key}` for it" for key in _list_odd_keys(task.raw)]
    question = _join_conditions([task])
    if shell and not shell.endswith("/sh"):
        problems.append(f"it was written for {shell}, and a host runs it with /bin/sh")
    if task.module == "command" and shell_lines.has_signs(code):
        # Ansible ran it without a shell.
        with suppress(ValueError):
            code = shlex.join(shlex.split(code))
    code = f"cd {shlex.quote(path)} && {code}" if path else code
    if creates or removes or changed:
        guard = _Guard(creates, removes, question, changed)
        _carry_guarded(play, origin, code, guard, problems, root=root)
        return
    play.pages.carry_code(origin, code, root=root, problems=problems, condition=question)


@dataclass(frozen=True)
class _Guard:
    """What shows whether a line is needed, and what else Ansible asked."""

    creates: str
    """The file that must not be there; "" if there is none."""
    removes: str
    """The file that has to be there; "" if there is none."""
    question: str
    changed: Sequence[str]
    """The steps of which one has to be needed."""


def _carry_guarded(
    play: _Play, origin: Origin, code: str, guard: _Guard, problems: Sequence[str], *, root: bool
) -> None:
    """Carry a line over that runs where a file, or a step before it, shows that it is needed."""

    page = len(play.pages.drafts)

    def carry(draft: Draft) -> None:
        if guard.changed:
            _stay_on(play, page)
        shell_lines.carry_blind(draft, origin, code, root=root, problems=problems)
        _, _, step = draft.steps.pop()
        step |= _find_need(draft, guard)
        comment = f"Lines of a shell: only {shown} whether they ran."
        draft.ask_condition(
            guard.question, lambda: draft.add_step(origin, step, comment), guard.changed
        )

    has_file = bool(guard.creates or guard.removes)
    shown = "a file shows" if has_file else "the steps before it show"
    try:
        play.pages.carry(origin, carry)
    except Unclear as unclear:
        _ask(play, origin, str(unclear), f"the line {code[:200]}")
        return
    kind = Kind.BLIND if problems else Kind.TYPED
    why = "the file that it creates or removes shows it" if has_file else shown
    play.pages.add_outcome(kind, origin, f"only {why}")


def _find_need(draft: Draft, guard: _Guard) -> dict[str, str]:
    """Return the parts of a step that say when a line is needed, and what it changes."""
    if not guard.creates and not guard.removes:
        return {
            "when": draft.join_any(guard.changed),
            "no_undo": "it follows the steps before it: do it again after their undo",
        }
    conditions = list[str]()
    for path, sign, wanted in ((guard.creates, "==", "a file"), (guard.removes, "!=", "nothing")):
        if path:
            found, _, _ = file_changes.look_for(draft, path)
            draft.claim(path, wanted)
            conditions.append(f'{found} {sign} ""')
    there = draft.text(guard.creates or guard.removes)
    return {
        "when": " && ".join(conditions),
        "before": "no such file" if guard.creates else f"{there} is there",
        "after": f"{there} is there" if guard.creates else f"{there} is gone",
        "no_undo": "only the file shows that these lines ran, and not what else they did",
    }


def _import_handler(play: _Play, document: Document, path: KeyPath, raw: dict[str, Any]) -> None:
    line = document.make_error(path, "").line
    name = str(raw.get("name") or "")
    origin = Origin(play.file, line, name or "handler")
    notified = _list_notified(play, raw)
    if not notified:
        play.pages.leave_out(origin, "no task that was carried over notifies it")
        return
    page = len(play.pages.drafts)
    known = [condition for count, condition in notified if count == page and condition]
    is_all = len(known) == len(notified)
    try:
        found = _read_restart(play, line, {**play.common, **raw})
        if found is None and "block" not in raw:
            _import_task(play, document, path, raw, _After(known, is_all))
            return
        if found is None:
            raise Unclear(f"the handler {name} is a block")
        verb, service = found

        def carry(draft: Draft) -> None:
            nonlocal known, is_all
            if len(play.pages.drafts) != page:
                known, is_all = [], False
            changes.carry_restart(draft, origin, verb, service, known, is_all=is_all)

        play.pages.carry(origin, carry)
    except Unclear as unclear:
        _ask(play, origin, str(unclear), f"what the handler {name} did")
        return
    note = "if a step that notifies it is needed"
    if not is_all:
        note += ", and the draft asks when those are whose condition is not known"
    play.pages.add_outcome(Kind.TYPED, origin, note)


def _read_restart(play: _Play, line: int, raw: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the verb and the service of a handler; None if it does more. Raises Unclear."""
    name = str(raw.get("name") or "")
    modules = [key for key in raw if key not in _KEYWORDS]
    if len(modules) != 1 or any(key in raw for key in ("loop", "block")):
        return None
    task = _make_task(play, line, name, modules[0], raw, None)
    if task is None or task.conditions:
        return None
    given = dict(task.given)
    state = str(given.pop("state", ""))
    services = [given.pop(key) for key in ("name", "service", "unit") if key in given]
    if task.module not in ("service", "systemd", "systemd_service") or given or len(services) != 1:
        return None
    if state not in ("restarted", "reloaded"):
        return None
    if reason := _find_no_meaning(play, task.module, task):
        raise Unclear(reason)
    return state.removesuffix("ed"), str(services[0])
