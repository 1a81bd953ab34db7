"""Playbooks and task files of Ansible, which AWX and Semaphore run too.

Format: https://docs.ansible.com/ansible/latest/reference_appendices/playbooks_keywords.html
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bot.features.importing.ansible.keys import ODD_FLAGS, ODD_KEYS
from bot.features.importing.ansible.loops import list_items
from bot.features.importing.ansible.play import (
    KEYWORDS,
    MOST_NESTED,
    WHO,
    After,
    Play,
    Target,
    as_parts,
    ask,
    drop_of_dynamic,
    list_modules,
    make_scope,
    name_item,
    note_use,
)
from bot.features.importing.ansible.playbooks import (
    find_login,
    find_role_file,
    includes_itself,
    is_play,
    list_dependencies,
    list_last,
    list_plays,
)
from bot.features.importing.ansible.steps import (
    FURTHER,
    UNKNOWN,
    carry_tasks,
    find_no_meaning,
    list_notified,
    notify,
)
from bot.features.importing.ansible.systems import SYSTEMS
from bot.features.importing.ansible.tasks import (
    find_no_change,
    make_task,
    split_arguments,
    split_include,
)
from bot.features.importing.ansible.variables import (
    find_file,
    find_folder,
    find_role,
    join_variables,
    list_conditions,
    read_variables,
)
from bot.features.importing.drafts import Kind, Origin, Unclear
from bot.features.importing.kinds import changes
from bot.features.importing.pages import Imported, Pages
from bot.features.importing.sources import (
    SourceError,
    as_list,
    as_mapping,
    is_false,
    is_file_within,
    is_list_of_mappings,
    is_mapping,
    read_bytes,
    read_yaml,
)
from runbooks._declared_yaml import Document, KeyPath

_LISTS = ("pre_tasks", "tasks", "post_tasks")
_SETTINGS: Mapping[str, str] = {
    "import_playbook": "import that file too",
    "ansible.builtin.import_playbook": "import that file too",
    "include": "import that file too",
    "vars_files": "their values are not read: name these files by --vars",
    "vars_prompt": "the request has fields for them, but none for a secret",
    "strategy": "a request for several hosts is one for each",
    "serial": "a request for several hosts is one for each",
    "connection": "Keyturn reaches hosts by SSH: request it for the host that is meant",
}
_FOR_OTHERS = "it changes nothing on these hosts: its condition fails on all of them"
_ELSEWHERE = "it changes nothing on these hosts, but something on the machine where Ansible runs"
_NOT_RUN = "it does not run with the values that the files give to"
# What tasks have of their play, of blocks around them, or of both.
_OF_PLAY = ("become_user", "become_flags", "sudo_user", *ODD_KEYS, *ODD_FLAGS)
_OF_BLOCK = (*_OF_PLAY, "become", "delegate_to", "connection", "tags")
_OF_INCLUDE = frozenset(
    {"name", "tags", "when", "vars", "loop", "with_items", "loop_control", "with_first_found",
     "become", "notify", "static"}
)  # fmt: skip
_OF_ROLE = frozenset(
    {"name", "tags", "when", "vars", "become", "notify", "loop", "with_items", "loop_control"}
)
_OF_APPLY = frozenset({"tags", "become", "become_user", "when", "vars"})
# Beside its handlers and its variables, which may be other ones.
_ROLE_ARGUMENTS = frozenset({"name", "tasks_from", "public", "allow_duplicates"})
_MOST_INCLUDED = 300
# After all lines.
_LAST = 10**9


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
    title = name or (file.absolute().parent.parent.name if file.stem == "main" else file.stem)
    plays = [*list_plays(file, document, ())]
    if not any(is_play(one.raw) for one in plays):
        if not any("block" in one or len(list_modules(one)) == 1 for one in as_list(items)):
            raise SourceError(
                f"{file}: line 1: is not a playbook: none of its entries is a play, which has "
                "`hosts`, or a task, which has one module"
            )
        return [_import_tasks(file, document, title, items, target).finish(taken)]
    found: list[Imported] = []
    for number, one in enumerate(plays, start=1):
        known = str(one.raw.get("name") or "")
        base = title if one.file == file else one.file.stem
        shown = known or (base if len(plays) == 1 else f"{base} play{number}")
        found.append(
            _import_play(one.file, one.document, one.path, shown, one.raw, target).finish(taken)
        )
    return found


def _import_tasks(
    file: Path, document: Document, title: str, tasks: list[Any], target: Target
) -> Pages:
    play = _make_play(file, title, {}, tasks, target)
    play.root = True
    reason = "the file does not say who runs its tasks: each step is root's"
    play.pages.leave_out(Origin(file, 1, "become"), reason, is_setting=True)
    role = find_role(file)
    if role and file.stem == "main":
        _import_roles(play, Origin(file, 1, "dependencies"), list_dependencies(role))
    for at, each in enumerate(_list(file, document, (), tasks)):
        _import_task(play, document, (at,), each)
    if role:
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
    tasks = [one for name in (*_LISTS, "handlers") for one in as_list(raw.get(name))]
    play = _make_play(file, title, raw, tasks, target)
    login, is_root = find_login(play, raw)
    if is_root is None:
        _fill_play(play, document, path, raw, is_root=True)
        if not play.says_who:
            reason = "nothing says who runs its tasks, as root or with -b: each step is root's"
            play.pages.leave_out(Origin(file, 1, "become"), reason, is_setting=True)
            return play.pages
        # Some say so, and the others are the login's.
        play = _make_play(file, title, raw, tasks, target)
    play.login = login
    _fill_play(play, document, path, raw, is_root=is_root is True)
    return play.pages


def _set_root(play: Play, raw: Mapping[str, Any], *, is_root: bool) -> None:
    """Say whether root runs the tasks of a play, who then gathers the facts too."""
    play.root = is_root
    if is_root and str(raw.get("become_user", "root")) == "root":
        play.facts.add_root()


def _fill_play(
    play: Play, document: Document, path: KeyPath, raw: dict[str, Any], *, is_root: bool
) -> None:
    file = play.file
    _set_root(play, raw, is_root=is_root)
    play.common = {key: raw[key] for key in _OF_PLAY if key in raw}
    prompts = [as_mapping(one) for one in as_list(raw.get("vars_prompt"))]
    play.prompts.update({str(one.get("name")): one for one in prompts})

    def find_origin(name: str) -> Origin:
        return Origin(file, document.make_error((*path, name), "").line, name)

    for name, reason in _SETTINGS.items():
        if name in raw:
            is_read = name == "vars_files" and not play.variables.is_open
            shown = "their values are used" if is_read else reason
            play.pages.leave_out(find_origin(name), shown, is_setting=True)
    for name in _LISTS:
        if name == "tasks":
            _import_roles(play, find_origin("roles"), raw.get("roles"))
        for at, each in enumerate(_list(file, document, (*path, name), raw.get(name))):
            _import_task(play, document, (*path, name, at), each)
    handlers = _list(file, document, (*path, "handlers"), raw.get("handlers"))
    _import_role_handlers(play, handlers)
    for at, each in list_last(handlers):
        _import_handler(play, document, (*path, "handlers", at), each)
    _question_defaults(play)


def _list(file: Path, document: Document, path: KeyPath, value: object) -> list[Any]:
    if value is not None and not is_list_of_mappings(value):
        line = document.make_error(path, "").line
        raise SourceError(f"{file}: line {line}: {path[-1]} is not a list of tasks")
    return [*map(drop_of_dynamic, as_list(value))]


def _make_play(
    file: Path, title: str, raw: Mapping[str, Any], tasks: object, target: Target
) -> Play:
    unknown = {"inventory_hostname": "host", "inventory_hostname_short": "host"}
    facts = target.system.make_facts()
    variables = read_variables(file, raw, tasks, facts, target.values)
    # What decides which files of variables are read is used wherever one of their values is.
    pages = Pages(title, f"{title[:150]}.", file, {})
    pages.endings.append(lambda draft: target.system.guard(draft, facts.used))
    play = Play(file, pages, variables, facts, target.values, unknown)
    play.defaults |= variables.defaults
    play.used |= variables.used
    play.assumed |= variables.assumed
    return play


def _question_defaults(play: Play) -> None:
    """Ask whether the inventory has other values than those that are used, or has some at all.

    And who does what Ansible did where it ran.
    """
    if play.elsewhere:
        count, first = len(play.elsewhere), play.elsewhere[0]
        such = (
            f"{count} tasks, such as that of line {first}"
            if count > 1
            else f"task of line {first}"
        )
        text = f"TODO: who does the {such}, which Ansible did on the machine where it runs?"
        play.pages.notes.append({"text": text})
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


def _import_task(
    play: Play,
    document: Document,
    path: KeyPath,
    raw: dict[str, Any],
    after: "After | None" = None,
) -> None:
    """Import a task. after: of a handler, the steps after which it runs."""
    line = document.make_error(path, "").line
    if "block" in raw:
        _import_block(play, document, path, raw)
        return
    raw = _inherit(play.common, raw)
    if "local_action" in raw:
        raw |= {"delegate_to": "localhost"} | _read_local(raw.pop("local_action"))
    _note_who(play, line, raw)
    modules = list_modules(raw)
    if len(modules) != 1:
        ask(play, Origin(play.file, line, str(raw.get("name") or "task")), "it has no one module")
        return
    module = modules[0]
    name = str(raw.get("name") or module)
    origin = Origin(play.file, line, " ".join(name.split())[:120])
    short = module.rpartition(".")[2]
    if "register" in raw:
        # Also of a task that is left out then, whose result says so.
        play.forget(str(raw["register"]))
    scope = make_scope(play, raw, {})
    failed_by, _ = scope.judge(list_conditions(raw))
    if failed_by is not None:
        note_use(play, scope)
        names = ", ".join(sorted(failed_by))
        play.pages.leave_out(origin, f"{_NOT_RUN} {names}" if names else _FOR_OTHERS)
        return
    if short not in FURTHER or not _include(play, origin, module, raw):
        _import_module(play, origin, module, raw, after)


def _note_who(play: Play, line: int, raw: Mapping[str, Any]) -> None:
    """Note that a task says who runs it, unless it runs elsewhere."""
    if {*raw, *as_mapping(raw.get("vars"))} & WHO and not _runs_elsewhere(raw):
        play.says_who.append(line)


def _import_module(
    play: Play, origin: Origin, module: str, raw: dict[str, Any], after: "After | None"
) -> None:
    """Import what the module of a task does for each item of its loop."""
    line, name = origin.line, str(raw.get("name") or module)
    short = module.rpartition(".")[2]
    no_change = find_no_change(short, raw[module])
    if not no_change and (_runs_elsewhere(raw) or short == "fetch"):
        play.elsewhere.append(line)
        play.pages.leave_out(origin, _ELSEWHERE)
        notify(play, raw, [UNKNOWN])
        return
    try:
        made = [
            make_task(play, line, name, module, raw, item, number)
            for number, item in enumerate(list_items(play, raw))
        ]
    except Unclear as unclear:
        if no_change:
            play.pages.leave_out(origin, no_change)
        else:
            ask(play, origin, str(unclear), f"what the module {short} did at line {line}")
        return
    carry_tasks(play, origin, short, [task for task in made if task is not None], after)


def _read_local(given: object) -> dict[str, Any]:
    """Return the module of a local action with its arguments."""
    if is_mapping(given):
        arguments = as_mapping(given)
        return {
            str(arguments.get("module")): {
                key: arguments[key] for key in arguments.keys() - {"module"}
            }
        }
    module, _, rest = str(given).strip().partition(" ")
    return {module: rest}


def _runs_elsewhere(raw: Mapping[str, Any]) -> bool:
    """Return whether a task runs on the machine where Ansible runs."""
    how = (raw.get("connection"), as_mapping(raw.get("vars")).get("ansible_connection"))
    return "local" in how or str(raw.get("delegate_to")) in ("localhost", "127.0.0.1")


def _import_block(play: Play, document: Document, path: KeyPath, raw: dict[str, Any]) -> None:
    for name in ("block", "always"):
        for at, each in enumerate(_list(play.file, document, (*path, name), raw.get(name))):
            _import_task(play, document, (*path, name, at), _inherit(raw, each))
    if "rescue" in raw:
        reason = "Keyturn stops at a step that fails, and offers the undo of those before"
        line = document.make_error(path, "").line
        play.pages.leave_out(Origin(play.file, line, "rescue"), reason, is_setting=True)


def _include(play: Play, origin: Origin, module: str, raw: Mapping[str, Any]) -> bool:
    """Import the tasks of another file or role in the place of a task, if it is known which."""
    short = module.rpartition(".")[2]
    if len(play.around) >= MOST_NESTED or short == "import_playbook":
        return False
    split, apply = _split_include(module, raw)
    plain = _OF_ROLE if short.endswith("role") else _OF_INCLUDE
    odd = split.keys() - plain - {module}
    odd -= {one for one in ("check_mode", "ignore_errors") if is_false(split.get(one))}
    odd -= {"delegate_to"} if short == "import_tasks" else set()
    if odd or apply.keys() - _OF_APPLY:
        return False
    inner = _inherit(split, apply)
    try:
        if short.endswith("role"):
            return _include_roles(play, origin, module, split, inner)
        found = _list_included(play, module, split)
    except (Unclear, SourceError):
        return False
    for values, file, document in found:
        inside = replace(play, file=file, items=values, around=(*play.around, play.file))
        _import_inside(inside, origin, inner, document)
    reason = f"its tasks are here in its place: {', '.join(one.name for _, one, _ in found)}"
    play.pages.leave_out(origin, reason, is_setting=True)
    return True


def _split_include(
    module: str, raw: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return a task that includes with its arguments as a mapping, and what it applies."""
    given = raw[module]
    if is_mapping(given):
        arguments = as_mapping(given)
        plain = {key: each for key, each in arguments.items() if key != "apply"}
        return {**raw, module: plain}, as_mapping(arguments.get("apply"))
    if module.endswith("role"):
        return {**raw, module: split_arguments(module, str(given))}, {}
    # Before there were `vars`, they were beside the name of the file.
    name, values = split_include(str(given))
    tags = {key: values.pop(key) for key in values.keys() & {"tags"}}
    values |= as_mapping(raw.get("vars"))
    return {**raw, **tags, module: name, **({"vars": values} if values else {})}, {}


def _include_roles(
    play: Play, origin: Origin, module: str, raw: Mapping[str, Any], inner: Mapping[str, Any]
) -> bool:
    """Import the role that a task includes, for each item of its loop. Raises Unclear."""
    given = as_mapping(raw[module])
    if given.keys() - _ROLE_ARGUMENTS:
        return False
    wanted = list[tuple[Mapping[str, Any], str, str]]()
    for item in list_items(play, raw):
        values = {**play.items, **({} if item is None else {name_item(raw): item})}
        scope = make_scope(play, raw, values)
        names = (given.get("name"), given.get("tasks_from", "main"))
        name, part = (str(scope.evaluate(one)) for one in names)
        note_use(play, scope)
        wanted.append((values, name, part))
    if not all(find_role_file(play, name, part) for _, name, part in wanted):
        return False
    for values, name, part in wanted:
        _import_role(replace(play, items=values), origin, name, inner, part)
    return True


def _list_included(
    play: Play, module: str, raw: Mapping[str, Any]
) -> list[tuple[Mapping[str, Any], Path, Document]]:
    """Return the files with tasks that a task includes, each with the values of its loop.

    Raises Unclear and SourceError.
    """
    items = [None] if "with_first_found" in raw else list_items(play, raw)
    name = name_item(raw)
    plain = {key: raw[key] for key in raw.keys() - {"loop", "with_items", "loop_control"}}
    folder, place = find_folder(play.file), play.file.absolute().parent
    found: list[tuple[Mapping[str, Any], Path, Document]] = []
    for item in items:
        values = {**play.items, **({} if item is None else {name: item})}
        scope = make_scope(play, raw, values)
        file = find_file(plain, module, folder, scope, place)
        if file is None:
            raise Unclear("it is not known which file it includes")
        if includes_itself(play, file):
            raise Unclear("it includes itself, as often as only a run knows")
        note_use(play, scope)
        document = read_yaml(file, read_bytes(file))
        if not is_list_of_mappings(document.data):
            raise Unclear("it includes a file that is no list of tasks")
        found.append((values, file, document))
    return found


def _import_inside(
    inside: Play, origin: Origin, raw: Mapping[str, Any], document: Document
) -> None:
    """Import the tasks of a file in the place of a task or a role. Raises SourceError."""
    inside.included.append(inside.file)
    if len(inside.included) > _MOST_INCLUDED:
        raise SourceError(
            f"{inside.around[0]}: includes more than {_MOST_INCLUDED} files: "
            "import them one by one"
        )
    inside.pages.within.append(origin.line)
    for at, each in enumerate(_list(inside.file, document, (), document.data)):
        _import_task(inside, document, (at,), _inherit(raw, each))
    inside.pages.within.pop()


def _import_roles(
    play: Play, origin: Origin, listed: object, around: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Import roles, each once as it is given: of a play before its tasks, or that one depends on.

    around: what the role that depends on them has.
    """
    for each in as_list(listed):
        given = as_mapping(each)
        name = str(given.get("role", given.get("name", given.get("src", each))))
        own = {key: given[key] for key in given.keys() & _OF_ROLE - {"name"}}
        more = {key: given[key] for key in given.keys() - _OF_ROLE - {"role", "src", "version"}}
        # Keys that no role has are variables.
        own["vars"] = {**more, **as_mapping(own.get("vars"))}
        found = find_role_file(play, name, "main")
        shown = (found[0] if found else None, repr(sorted(own.items())))
        if found and shown in play.listed:
            continue
        play.listed.append(shown)
        if more.keys() & KEYWORDS or not _import_role(play, origin, name, _inherit(around, own)):
            reason = (
                f"the role {name} is not beside it: import its tasks/main.yml too, before this"
            )
            play.pages.leave_out(origin, reason, is_setting=True)


def _import_role(
    play: Play, origin: Origin, name: str, raw: Mapping[str, Any], part: str = "main"
) -> bool:
    """Import the tasks of a role that is beside the file; return whether there is one."""
    found = find_role_file(play, name, part)
    if not found:
        return False
    file, document = found
    role = find_role(file)
    if role and part == "main" and len(play.around) < MOST_NESTED:
        nested = replace(play, around=(*play.around, file))
        _import_roles(nested, origin, list_dependencies(role), raw)
    given, own = play.variables, read_variables(file, {}, document.data, play.facts, play.values)
    variables = join_variables(given, own, role)
    play.defaults |= variables.defaults
    play.used |= variables.used
    play.assumed |= variables.assumed
    inside = replace(play, file=file, variables=variables, around=(*play.around, play.file))
    play.roles.append(inside)
    _import_inside(inside, origin, raw, document)
    play.pages.leave_out(origin, f"its tasks are here: the role {name}", is_setting=True)
    return True


def _import_role_handlers(play: Play, own: Sequence[Any] = ()) -> None:
    """Import the handlers of roles that are notified, at the end as Ansible runs them.

    own: those of the play, which come after them.
    """
    found: list[tuple[Play, Document, list[Any]]] = []
    for each in play.roles:
        role = find_role(each.file)
        files = [role / "handlers" / name for name in ("main.yml", "main.yaml")] if role else []
        for file in (one for one in files if role and is_file_within(one, role)):
            try:
                document = read_yaml(file, read_bytes(file))
            except SourceError:
                continue
            inside = replace(each, file=file)
            found.append((inside, document, as_list(document.data)))
    play.pages.within.append(_LAST)
    for number, (inside, document, handlers) in enumerate(found, start=1):
        later = [one for *_, others in found[number:] for one in others]
        for at, raw in list_last(handlers, [*later, *own]):
            if list_notified(inside, as_mapping(raw)):
                _import_handler(inside, document, (at,), as_mapping(raw))
    play.pages.within.pop()


def _inherit(block: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task with what it has of the block around it."""
    joined = {
        key: [part for one in (block, task) if key in one for part in as_parts(one[key])]
        for key in ("when", "notify", "environment")
        if key in block or key in task
    }
    values = {**as_mapping(block.get("vars")), **as_mapping(task.get("vars"))}
    own = {key: block[key] for key in _OF_BLOCK if key in block}
    return {**own, **task, **joined, **({"vars": values} if values else {})}


def _import_handler(play: Play, document: Document, path: KeyPath, raw: dict[str, Any]) -> None:
    line = document.make_error(path, "").line
    name = str(raw.get("name") or "")
    origin = Origin(play.file, line, name or "handler")
    notified = list_notified(play, raw)
    _note_who(play, line, raw)
    if not notified:
        play.pages.leave_out(origin, "no task that was carried over notifies it")
        return
    page = len(play.pages.drafts)
    known = [condition for count, condition in notified if count == page and condition]
    is_all = len(known) == len(notified)
    try:
        found = _read_restart(play, line, {**play.common, **raw})
        if found is None and "block" not in raw:
            _import_task(play, document, path, raw, After(known, is_all))
            return
        if found is None:
            raise Unclear(f"the handler {name} is a block")
        is_all = _carry_restart(play, origin, found, notified)
    except Unclear as unclear:
        ask(play, origin, str(unclear), f"what the handler {name} did")
        return
    note = "if a step that notifies it is needed"
    if not is_all:
        note += ", and the draft asks when those are whose condition is not known"
    play.pages.add_outcome(Kind.TYPED, origin, note)


def _carry_restart(
    play: Play, origin: Origin, found: tuple[str, str], notified: Sequence[tuple[int, str]]
) -> bool:
    """Restart a service at the end of each page whose steps ask for it. Raises Unclear.

    found: the verb and the service. notified: the pages, from 1, and when their steps are needed.
    Returns whether that is known of all.
    """
    conditions: dict[int, list[str]] = {}
    for page, condition in notified:
        conditions.setdefault(page, []).append(condition)
    carry = partial(changes.carry_restart, origin=origin, verb=found[0], name=found[1])
    left: list[int] = []
    for page, whens in conditions.items():
        known = [one for one in whens if one]
        try:
            action = partial(carry, conditions=known, is_all=known == whens)
            play.pages.carry_on(page, action)
        except Unclear:
            left.append(page)
    if left:
        # Such as after a page that is full: the last one asks when it is needed.
        play.pages.carry(origin, partial(carry, conditions=[], is_all=False))
    return not left and all(condition for _, condition in notified)


def _read_restart(play: Play, line: int, raw: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the verb and the service of a handler; None if it does more. Raises Unclear."""
    name = str(raw.get("name") or "")
    modules = [key for key in raw if key not in KEYWORDS]
    if len(modules) != 1 or any(key in raw for key in ("loop", "block")):
        return None
    task = make_task(play, line, name, modules[0], raw, None)
    if task is None or task.conditions:
        return None
    given = dict(task.given)
    state = str(given.pop("state", ""))
    services = [given.pop(key) for key in ("name", "service", "unit") if key in given]
    if task.module not in ("service", "systemd", "systemd_service") or given or len(services) != 1:
        return None
    if state not in ("restarted", "reloaded"):
        return None
    if reason := find_no_meaning(play, task.module, task):
        raise Unclear(reason)
    return state.removesuffix("ed"), str(services[0])
