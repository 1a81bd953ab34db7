"""Values that the files of a playbook or a role give to its variables.

Precedence: https://docs.ansible.com/ansible/latest/playbook_guide/playbooks_variables.html
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
from bot.features.importing.template_values import ROLE, Facts, is_simple
from bot.features.importing.templates import Scope, split_and

_ANY, _ANYWHERE, _FILE, _NAMED_BY = "", "/", ".", "?"
_FIRST_FOUND = re.compile(
    r"\s*\{\{\s*lookup\(\s*['\"](?:ansible\.builtin\.)?first_found['\"]\s*,\s*(\w+)\s*\)\s*\}\}\s*"
)
_NAMED = re.compile(r"\s*\{\{\s*(\w+)\s*\}\}\s*")
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


def read_variables(
    file: Path, play: Mapping[str, Any], tasks: object, facts: Facts, given: Mapping[str, Any]
) -> Variables:
    """Return the variables of a play, or those of the role that a file of tasks belongs to.

    tasks: all that may set a variable while it runs, which then has no one value.
    given: values that come before all others.
    """
    place = file.absolute().parent
    role = find_role(file) if not play else None
    base = (role.parent.parent if role.parent.name == "roles" else role) if role else place
    # What a repository says of all hosts comes before the defaults of roles; an inventory may
    # say otherwise of some.
    group = [*_list_all(base / "group_vars" / "all"), base / "group_vars" / "all.yml"]
    defaults = _read_all(_list_main(role / "defaults"), role) if role else {}
    defaults |= _read_all([one for one in group if one.is_file()], base)
    found = {**defaults, **as_mapping(play.get("vars"))}
    roles = [role] if role else [place / "roles" / str(one) for one in as_list(play.get("roles"))]
    if role:
        found |= _read_all(_list_main(role / "vars"), role) | _name_role(role)
    runs = list[object]() if role else [tasks]
    others: list[Path] = []
    lowest = dict[str, Any]()
    for each in roles:
        runs += [
            _read(one, each) for kind in ("tasks", "handlers") for one in _list_all(each / kind)
        ]
        if not role:
            others += _list_all(each / "vars")
            lowest |= _read_all(_list_main(each / "defaults"), each)
    scope = Scope({**found, **given}, facts)
    sure = _list_sure(tasks, role, scope)
    changed = [one for run in runs for one in _list_assigned(run, role, scope, run in sure)]
    changed, named = _split_named(changed)
    for name, value in changed:
        if name == _FILE and role:
            found |= _read_all([Path(str(value))], role)
    assigned = {name for name, value in changed if value is None} | {*_read_all(others, place)}
    sets = [name for name, value in changed if value is not None and name != _FILE]
    assigned |= lowest.keys() - found.keys()
    assigned |= {name for name in sets if sets.count(name) > 1 or name in found}
    found |= {name: value for name, value in changed if name in {*sets} - assigned}
    if _ANY in assigned and role:
        # It may be any of the role's own files that is not always read.
        odd = [one for one in role.glob("vars/**/*.y*ml") if one.stem != "main"]
        assigned |= {*_read_all(odd, role)}
    if play.get("vars_files") or (_ANY in assigned and not role) or _ANYWHERE in assigned:
        # Such a file may have any of them, and comes before what the play says.
        assigned |= {*found}
    assigned |= {str(as_mapping(one).get("name")) for one in as_list(play.get("vars_prompt"))}
    found = {name: value for name, value in found.items() if name not in assigned} | dict(given)
    only = {name for name in defaults if name in found and found[name] == defaults[name]}
    is_open = bool(play.get("vars_files") or {_ANY, _ANYWHERE} & assigned)
    return Variables(
        found,
        frozenset(only - {*given}),
        frozenset(assigned - {*given}),
        is_open,
        frozenset(scope.used - {*given}),
        named,
    )


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


def _list_sure(tasks: object, role: Path | None, scope: Scope) -> list[object]:
    """Return the lists of tasks that always run: those of a role begin with its main.yml."""
    if role is None:
        return [tasks]
    found = [tasks, *(_read(one, role) for one in _list_main(role / "tasks"))]
    files = set[Path]()
    # It grows by each file that is included.
    for each in found:
        for raw in map(as_mapping, as_list(each)):
            for key in raw:
                if str(key).rpartition(".")[2] not in ("include_tasks", "import_tasks"):
                    continue
                file = _is_sure(raw, str(key), scope) and find_file(raw, str(key), role, scope)
                if file and file not in files:
                    files.add(file)
                    found.append(_read(file, role))
    return found


def _list_assigned(
    value: object,
    role: Path | None,
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
            text = str(each) if isinstance(each, str) else ""
            names = as_mapping(each) or dict.fromkeys(re.findall(r"(\w+)=", text))
            for name, given in names.items():
                yield str(name), given if sure and _is_sure(raw, str(key), scope, name) else None
        elif short == "include_vars" and not _is_for_others(raw, scope):
            yield str(as_mapping(each).get("name")), None
            yield from _find_variables(raw, str(key), role, scope, sure)
        yield from _list_assigned(each, role, scope, sure)


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
    role: Path | None,
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
    if role and not is_odd and (is_within or is_named):
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
