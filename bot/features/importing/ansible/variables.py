"""Values that the files of a playbook or a role give to its variables.

Precedence: https://docs.ansible.com/ansible/latest/playbook_guide/playbooks_variables.html
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.features.importing.ansible.template_values import ROLE, Facts, is_simple
from bot.features.importing.ansible.templates import Scope, split_and
from bot.features.importing.drafts import Unclear
from bot.features.importing.sources import (
    SourceError,
    as_list,
    as_mapping,
    is_file_within,
    is_mapping,
    read_bytes,
    read_yaml,
)

_ANY, _ANYWHERE, _FILE, _NAMED_BY = "", "/", ".", "?"
_MARKS = frozenset({_ANY, _ANYWHERE, _FILE, _NAMED_BY})
_FIRST_FOUND = re.compile(
    r"\s*\{\{\s*lookup\(\s*['\"](?:ansible\.builtin\.)?first_found['\"]\s*,\s*(\w+)\s*\)\s*\}\}\s*"
)
_NAMED = re.compile(r"\s*\{\{\s*(\w+)\s*\}\}\s*")
_INCLUDES = frozenset({"include_tasks", "import_tasks", "include"})
_EMPTY = re.compile(
    r"\s*\{\{\s*(\w+)\s*\|\s*(?:d|default)\(\s*(?:\[\s*\]|\{\s*\})\s*(?:,\s*[Tt]rue\s*)?\)\s*\}\}\s*"
)
_NOT_SET = re.compile(r"\s*(\w+)\s+is\s+(?:not\s+defined|undefined)\s*")
# What a task that only reads a file or sets a value may have beside it.
_PLAIN_KEYS = frozenset({"name", "tags", "when", "with_first_found", "loop", "no_log", "vars"})


@dataclass
class Variables:
    """What is known of variables before a task runs. A value may be a template."""

    known: dict[str, Any] = field(default_factory=dict[str, Any])
    defaults: frozenset[str] = frozenset()
    """Those of them that are only defaults of a role, so that an inventory may say otherwise."""
    assigned: frozenset[str] = frozenset()
    """Those that only a run sets."""
    is_open: bool = False
    """Whether there are files of variables that were not read, and may set any."""
    used: frozenset[str] = frozenset()
    """Those that decide which files of variables are read."""
    assumed: frozenset[str] = frozenset()
    """Those that name such a file, and that no file sets."""
    of_roles: Mapping[str, frozenset[tuple[Path, bool]]] = field(
        default_factory=dict[str, frozenset[tuple[Path, bool]]]
    )
    """Those of `assigned` that only roles set, by those in which it is no default, and whether it
    is by a task."""


def read_variables(
    file: Path, play: Mapping[str, Any], tasks: object, facts: Facts, given: Mapping[str, Any]
) -> Variables:
    """Return the variables of a play, or those of the role that a file of tasks belongs to.

    tasks: all that may set a variable while it runs, which then has no one value.
    given: values that come before all others.
    """
    role, place = find_role(file) if not play else None, file.absolute().parent
    base = (role.parent.parent if role.parent.name == "roles" else role) if role else place
    # What a repository says of all hosts, or of those of the play, comes before the defaults of
    # roles; an inventory may say otherwise of some.
    defaults = _read_all(_list_main(role / "defaults"), role) if role else {}
    for group in ("all", *_name_hosts(play)):
        defaults |= _read_all(_list_group(base, group), base)
    found = {**defaults, **as_mapping(play.get("vars"))}
    if role:
        found |= _read_all(_list_main(role / "vars"), role) | _name_role(role)
    scope = Scope({**found, **given}, facts)
    files = _read_files_of_play(play, place, scope)
    found |= files or {}
    scope = replace(scope, known={**found, **given})
    roles = [] if role else _list_roles(play, file)
    changed = _list_changed(_list_tasks(tasks, role, place, scope), role, place, scope)
    by_tasks = [(each, one) for each in roles for one in _list_changed_by_role(each, scope)]
    changed += [one for _, one in by_tasks if one[0] in _MARKS]
    changed, named = _split_named(changed)
    for name, value in changed:
        if name == _FILE:
            found |= _read_all([Path(str(value))], role or place)
    assigned = {name for name, value in changed if value is None}
    sets = [name for name, value in changed if value is not None and name != _FILE]
    assigned |= {name for name in sets if sets.count(name) > 1 or name in found}
    found |= {name: value for name, value in changed if name in {*sets} - assigned}
    if files is None or (_ANY in assigned and not role) or _ANYWHERE in assigned:
        # Such a file may have any of them, and comes before what the play says.
        assigned |= {*found}
    assigned |= {str(as_mapping(one).get("name")) for one in as_list(play.get("vars_prompt"))}
    by_roles = _list_set_by_roles(roles, found.keys())
    for each, (name, _) in by_tasks:
        by_roles[name] = by_roles.get(name, frozenset()) | {(each, True)}
    by_roles = {name: by_roles[name] for name in by_roles.keys() - assigned}
    assigned |= by_roles.keys()
    found = {name: value for name, value in found.items() if name not in assigned} | dict(given)
    only = {name for name in defaults if name in found and found[name] == defaults[name]}
    return Variables(
        found,
        frozenset(only - {*given}),
        frozenset(assigned - {*given}),
        files is None or bool({_ANY, _ANYWHERE} & assigned),
        frozenset(scope.used - {*given}),
        named,
        by_roles,
    )


def _list_changed(
    lists: Sequence[tuple[object, bool]], role: Path | None, place: Path, scope: Scope
) -> list[tuple[str, object]]:
    """Return what the tasks of a play or of one role set, as `_list_assigned` does."""
    runs = [*lists]
    for one in _list_kinds(role, "tasks", "handlers") if role else []:
        run = _read(one, role or place)
        runs += [] if any(run == other for other, _ in lists) else [(run, False)]
    found = [one for run, sure in runs for one in _list_assigned(run, role or place, scope, sure)]
    return [*found, *_list_own(role)] if role and (_ANY, None) in found else found


def _list_changed_by_role(role: Path, scope: Scope) -> list[tuple[str, object]]:
    """Return what the tasks of a role of a play set."""
    runs = [_read(one, role) for one in _list_kinds(role, "tasks", "handlers")]
    found = [one for run in runs for one in _list_assigned(run, role, scope, sure=False)]
    odd = _list_own(role) if (_ANY, None) in found else []
    return [*(one for one in found if one != (_ANY, None)), *odd]


def _list_own(role: Path) -> list[tuple[str, object]]:
    """Return what any of a role's own files of variables sets that is not always read."""
    odd = [one for one in role.glob("vars/**/*.y*ml") if one.stem != "main"]
    return [(str(name), None) for name in _read_all(odd, role)]


def _list_set_by_roles(
    roles: Sequence[Path], found: Container[str]
) -> dict[str, frozenset[tuple[Path, bool]]]:
    """Return what files of the roles of a play set, as `of_roles` does.

    A default of a role comes last, and what else it sets before what the play says.
    """
    by_roles = {
        name: frozenset[tuple[Path, bool]]()
        for each in roles
        for name in _read_all(_list_main(each / "defaults"), each)
        if name not in found
    }
    for each in roles:
        for name in _read_all(_list_all(each / "vars"), each):
            by_roles[name] = by_roles.get(name, frozenset()) | {(each, False)}
    return by_roles


def join_variables(given: Variables, own: Variables, role: Path | None) -> Variables:
    """Return the variables of the tasks of a role in a play, by those of both."""
    # What a play says comes before a role's defaults, and its other variables before the play.
    said = {
        one: given.known[one]
        for one in given.known.keys() - given.defaults
        if one not in own.known or one in own.defaults
    }
    assigned = own.assigned | {
        one for one in given.assigned if not _is_of_role(given.of_roles.get(one), one, own, role)
    }
    known = {**given.known, **own.known, **said}
    return replace(
        own,
        known={one: value for one, value in known.items() if one not in assigned},
        defaults=own.defaults | given.defaults - own.known.keys(),
        assigned=assigned,
        is_open=own.is_open or given.is_open,
        of_roles={one: given.of_roles[one] for one in given.of_roles.keys() & assigned},
    )


def _is_of_role(
    setters: frozenset[tuple[Path, bool]] | None, name: str, own: Variables, role: Path | None
) -> bool:
    """Return whether a variable that several roles may set is the one of a role itself.

    setters: as of `of_roles`; None if something else sets it.
    """
    others = {one for one in setters or () if one[0] != role}
    is_beaten = any(by_task or name in own.defaults for _, by_task in others)
    return setters is not None and name in own.known and not is_beaten


def _name_hosts(play: Mapping[str, Any]) -> list[str]:
    """Return the one group, or host, that a play is for, if it is one; none for others."""
    hosts = play.get("hosts")
    names = [str(one) for one in as_list(hosts) or [hosts]]
    return names if len(names) == 1 and re.fullmatch(r"(?!all$)[\w-]+", names[0]) else []


def _list_group(base: Path, name: str) -> list[Path]:
    """Return the files of variables of a group, or of a host with that name."""
    found = list[Path]()
    for folder in (base / "group_vars", base / "host_vars"):
        ends = [folder / f"{name}{end}" for end in ("", ".yml", ".yaml")]
        found += [*_list_all(folder / name), *(one for one in ends if one.is_file())]
    return found


def _read_files_of_play(
    play: Mapping[str, Any], place: Path, scope: Scope
) -> dict[str, Any] | None:
    """Return what the `vars_files` of a play have; None if one is not beside it."""
    given = play.get("vars_files")
    found = dict[str, Any]()
    for each in as_list(given) or ([given] if given else []):
        wanted = as_list(each) or [each]
        try:
            names = [str(scope.evaluate(one)) for one in wanted]
        except Unclear:
            return None
        files = [folder / one for one in names for folder in (place / "vars", place)]
        file = next((one for one in files if is_file_within(one, place)), None)
        content = _read(file, place) if file else None
        if not is_mapping(content) or "include_vars" in as_mapping(content):
            return None
        found |= as_mapping(content)
    return found


def _list_roles(play: Mapping[str, Any], file: Path) -> list[Path]:
    """Return the folders of the roles of a play that are there."""
    names = [as_mapping(one).get("role", as_mapping(one).get("name", one))
             for one in as_list(play.get("roles"))]  # fmt: skip
    folders = (file.absolute().parent / "roles", *list_role_folders(file))
    found = [[one / str(name) for one in folders if (one / str(name)).is_dir()] for name in names]
    return [one[0] for one in found if one]


def _list_kinds(role: Path, *kinds: str) -> list[Path]:
    return [one for kind in kinds for one in _list_all(role / kind)]


def _split_named(
    changed: Sequence[tuple[str, object]],
) -> tuple[list[tuple[str, object]], frozenset[str]]:
    """Return what tasks set, and the variables that name files of others, and that none sets."""
    names = {name for name, _ in changed}
    named = {str(value) for name, value in changed if name == _NAMED_BY}
    found = [one for one in changed if one[0] != _NAMED_BY]
    if named & names:
        found.append((_ANYWHERE, None))
    return found, frozenset(named - names)


def find_role(file: Path) -> Path | None:
    """Return the role that a file of tasks or handlers belongs to."""
    for each in list(file.absolute().parents)[:3]:
        if each.name in ("tasks", "handlers"):
            return each.parent
    return None


def list_role_folders(file: Path) -> list[Path]:
    """Return the folders of roles that a configuration or a collection around a file names."""
    place = _find_configured(file)
    if place and (place / "ansible.cfg").is_file():
        names = read_setting(file, "defaults", "roles_path").split(":")
        plain = [one.strip() for one in names]
        return [place / one for one in plain if re.fullmatch(r"(?!/|~|.*\.\.)[\w./-]+", one)]
    return [place / "roles"] if place else []


def _find_configured(file: Path) -> Path | None:
    """Return the folder around a file with a configuration of Ansible, or of a collection."""
    names = ("ansible.cfg", "galaxy.yml")
    parents = list(file.absolute().parents)[:6]
    return next((one for one in parents if any((one / name).is_file() for name in names)), None)


def read_setting(file: Path, section: str, name: str) -> str:
    """Return what the next configuration of Ansible around a file sets; "" for nothing."""
    place = _find_configured(file)
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        if place and (place / "ansible.cfg").is_file():
            parser.read_string(read_bytes(place / "ansible.cfg").decode())
        return parser.get(section, name, fallback="").strip()
    except (ConfigParserError, SourceError, UnicodeDecodeError):
        return ""


def _name_role(role: Path) -> dict[str, str]:
    """Return the variables with the name of a role; a clone alone may have another name."""
    is_known = role.parent.name == "roles"
    return dict.fromkeys(("role_name", "ansible_role_name"), role.name) if is_known else {}


def find_folder(file: Path) -> Path:
    """Return the folder of a role, or the one of a playbook: where files and templates are."""
    return find_role(file) or file.absolute().parent


def _list_main(folder: Path) -> list[Path]:
    files = [folder / name for name in ("main.yml", "main.yaml")]
    return files if any(map(Path.is_file, files)) else _list_all(folder / "main")


def _list_all(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.y*ml"))


def _read_all(files: list[Path], place: Path) -> dict[str, Any]:
    return {name: each for file in files for name, each in as_mapping(_read(file, place)).items()}


def _read(file: Path, place: Path) -> object:
    """Return the content of a file of a role; what may be any of them if it cannot be read."""
    if not is_file_within(file, place):
        return None
    try:
        return read_yaml(file, read_bytes(file)).data
    except SourceError:
        return {"include_vars": str(file)}


def _list_tasks(
    tasks: object, role: Path | None, place: Path, scope: Scope
) -> list[tuple[object, bool]]:
    """Return the lists of tasks of a play or a role, and whether each always runs.

    Those of a role begin with its main.yml. Of others than those that always run, a role has all.
    """
    base = role or place
    found: list[tuple[object, bool]] = [(tasks, True)]
    mains = [_read(one, role) for one in _list_main(role / "tasks")] if role else []
    found += [(one, True) for one in mains if one != tasks]
    files = set[Path]()
    # It grows by each file that is included.
    for each, is_sure in found:
        for raw in map(as_mapping, as_list(each)):
            for key in raw:
                if str(key).rpartition(".")[2] not in _INCLUDES:
                    continue
                always = is_sure and _is_sure(raw, str(key), scope)
                file = find_file(raw, str(key), base, scope) if always or not role else None
                if file and file not in files:
                    files.add(file)
                    found.append((_read(file, base), always))
    return found


def _list_assigned(
    value: object,
    role: Path,
    scope: Scope,
    sure: bool,  # noqa: FBT001 - it recurses
) -> Iterator[tuple[str, object]]:
    """Yield the variables that tasks set with their values, None for one that is not known.

    A file of the role that is always read is _FILE with its path. _ANY is one that is not known,
    and _ANYWHERE one from elsewhere; _NAMED_BY has the variable that names one.
    """
    for each in as_list(value):
        yield from _list_assigned(each, role, scope, sure)
    raw = as_mapping(value)
    if "block" in raw:
        sure = sure and not (raw.keys() & {"vars", "rescue"}) and _is_sure(raw, "block", scope)
    for key, each in raw.items():
        short = str(key).rpartition(".")[2]
        if short == "register":
            yield str(each), None
        elif short == "set_fact" and not _is_for_others(raw, scope):
            for name, given in _list_facts(each).items():
                yield name, given if sure and _is_sure(raw, str(key), scope, name) else None
        elif short == "include_vars" and not _is_for_others(raw, scope):
            yield str(as_mapping(each).get("name")), None
            yield from _find_variables(raw, str(key), role, scope, sure)
        yield from _list_assigned(each, role, scope, sure)


def _list_facts(given: object) -> dict[str, object]:
    """Return what a task sets with the values, without what stays as an inventory has it."""
    text = str(given) if isinstance(given, str) else ""
    names = as_mapping(given) or dict.fromkeys(re.findall(r"(\w+)=", text))
    # Empty without an inventory, as what is not set is taken anyway.
    empty = {name: _EMPTY.fullmatch(str(each)) for name, each in names.items()}
    return {
        str(name): each
        for name, each in names.items()
        if not (found := empty[name]) or found[1] != name
    }


def _is_for_others(raw: Mapping[str, Any], scope: Scope) -> bool:
    return scope.judge(list_conditions(raw))[0] == set()


def list_conditions(raw: Mapping[str, Any]) -> list[str]:
    """Return the conditions of a task, each of which has to hold."""
    when = raw.get("when", [])
    return [part for one in as_list(when) or [when] if one != [] for part in split_and(str(one))]


def _is_sure(raw: Mapping[str, Any], module: str, scope: Scope, name: str = "") -> bool:
    """Return whether a task always runs on the hosts, or if the variable is not set."""
    if raw.keys() - _PLAIN_KEYS - {module} or (
        name and raw.keys() & {"loop", "with_first_found", "vars"}
    ):
        return False
    parts = [
        one
        for one in list_conditions(raw)
        if not (guard := _NOT_SET.fullmatch(one)) or guard[1] != name
    ]
    return scope.judge(parts) == (None, [])


def _find_variables(
    raw: Mapping[str, Any],
    module: str,
    role: Path,
    scope: Scope,
    sure: bool,  # noqa: FBT001
) -> Iterator[tuple[str, object]]:
    """Yield what a task that reads a file of variables sets, as `_list_assigned` does."""
    given = raw[module]
    if as_mapping(given).keys() - {"file"}:
        yield _ANY, None
        return
    is_odd = raw.keys() & {"vars"} and not _FIRST_FOUND.fullmatch(str(given))
    name = str(as_mapping(given).get("file", given))
    is_within = not re.search(r"_dir|\.\.|^ *(/|\{\{ *(?!item)\w+ *\}\} *$)", name)
    is_named = _NAMED.fullmatch(name)
    if not is_odd and (is_within or is_named):
        found = find_file(raw, module, role, scope)
        if found and sure and is_within and _is_sure(raw, module, scope):
            yield _FILE, found
            return
        content = _read(found, role) if found else None
        if is_mapping(content) and "include_vars" not in as_mapping(content):
            # It may not be read, so only a run knows what is in it.
            yield from dict.fromkeys(map(str, as_mapping(content))).items()
            return
        if is_named and is_simple(is_named[1]) and is_named[1] not in scope.known:
            # Without a file, the task would fail, if it runs at all.
            yield _NAMED_BY, is_named[1]
            return
    yield (_ANY if is_within else _ANYWHERE), None


def find_file(
    raw: Mapping[str, Any], module: str, role: Path, scope: Scope, place: Path | None = None
) -> Path | None:
    """Return the file that a task reads, or the first of several that there is; None if unclear.

    place: of the file with the task.
    """
    kind = "vars" if module.endswith("include_vars") else "tasks"
    folders = [*([place] if place else []), role / kind, role]
    for each in _list_wanted(raw, module):
        try:
            name = str(scope.evaluate(each))
        except Unclear:
            # No file may be meant, whatever the fact is.
            if _may_be_there(each, folders, scope):
                return None
            continue
        of_role = name.removeprefix(f"{ROLE}/")
        for folder in folders if of_role == name else [role]:
            if name and is_file_within(folder / of_role, role):
                return folder / of_role
    return None


def _may_be_there(name: object, folders: Sequence[Path], scope: Scope) -> bool:
    """Return whether there may be a file whose name has facts that are not known."""
    try:
        facts = Facts(scope.facts, is_pattern=True)
        pattern = str(replace(scope, facts=facts).evaluate(name))
        scope.facts.used |= facts.used
        return ".." in pattern or any(list(folder.glob(pattern)) for folder in folders)
    # No pattern may be absolute, or empty.
    except (Unclear, NotImplementedError, ValueError):
        return True


def _list_wanted(raw: Mapping[str, Any], module: str) -> list[Any]:
    """Return the files of which the first that is there is meant; none for what is not read."""
    given = as_mapping(raw[module]).get("file", raw[module])
    if as_mapping(raw[module]).keys() - {"file", "apply"} or "loop" in raw:
        return []
    if as_mapping(as_mapping(raw[module]).get("apply")).keys() - {"tags", "become"}:
        return []
    given = re.sub(r"^\s*file=", "", given) if isinstance(given, str) else given
    looked_up = _FIRST_FOUND.fullmatch(given) if isinstance(given, str) else None
    if "with_first_found" not in raw and not looked_up:
        return [given]
    if not looked_up and not re.fullmatch(r"\s*\{\{\s*item\s*\}\}\s*", str(given)):
        return []
    own = as_mapping(raw.get("vars"))
    listed = own.get(looked_up[1]) if looked_up else raw["with_first_found"]
    parts = [_list_names(one) for one in as_list(listed) or [listed]]
    return [name for part in parts for name in part] if all(parts) else []


def _list_names(given: object) -> list[Any]:
    """Return the names of files of which the first is meant; none for what is not read."""
    if not is_mapping(given):
        return [given]
    odd = as_mapping(given).keys() - {"files", "paths", "skip"}
    paths = as_mapping(given).get("paths", [])
    plain = {re.sub(r"^\{\{ *role_path *\}\}/|^\.\./|^\./", "", str(one)).rstrip("/")
             for one in as_list(paths) or [paths] if one}  # fmt: skip
    return [] if odd or plain - {"vars", "tasks"} else as_list(as_mapping(given).get("files"))
