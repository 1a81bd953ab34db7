"""Values that the files of a playbook or a role give to its variables.

Precedence: https://docs.ansible.com/ansible/latest/playbook_guide/playbooks_variables.html
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.features.importing.sources import (
    SourceError,
    as_list,
    as_mapping,
    is_file_within,
    is_list,
    read_bytes,
    read_yaml,
)

_REFERENCE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_NUMBER = re.compile(
    r"[+-]?(0[0-9_]+|0[xob][0-9a-fA-F_]+|[0-9][0-9_]*_[0-9_]*|[0-9_]*\.[0-9_]*0|[0-9_.]+e[+-]?[0-9]+"
    r"|[0-9]+(:[0-9]+)+)"
)
_MOST_NESTED = 5
_ANY = ""


@dataclass
class Variables:
    """What is known of variables before a task runs."""

    values: dict[str, str] = field(default_factory=dict[str, str])
    lists: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    defaults: frozenset[str] = frozenset()
    """Those of them that are only defaults of a role, so that an inventory may say otherwise."""


def is_known(value: object) -> bool:
    """Return whether a value is one text or number that the file has as a whole.

    A number that Ansible's YAML 1.1 reads as another, such as 0644 or 1.10, is not known.
    """
    text = str(value)
    return isinstance(value, str | int) and "{{" not in text and not _NUMBER.fullmatch(text)


def is_flag(value: str) -> bool:
    """Return whether Ansible takes a text for yes or no, and so writes it as True or False."""
    return value.lower() in ("yes", "no", "on", "off", "true", "false", "y", "n")


def read_variables(file: Path, play: Mapping[str, Any], tasks: object) -> Variables:
    """Return the variables of a play, or those of the role that a file of tasks belongs to.

    tasks: all that may set a variable while it runs, which then has no one value.
    """
    place = file.absolute().parent
    role = place.parent if place.name in ("tasks", "handlers") and not play else None
    defaults = _read_all(_list_main(role / "defaults"), role) if role else {}
    found = {**defaults, **as_mapping(play.get("vars"))}
    others: list[Path] = []
    if role:
        found |= _read_all(_list_main(role / "vars"), role)
        others = [one for one in role.glob("vars/**/*.y*ml") if one.stem != "main"]
    roles = [role] if role else [place / "roles" / str(one) for one in as_list(play.get("roles"))]
    runs = [tasks]
    for each in roles:
        runs += [
            _read(one, each) for kind in ("tasks", "handlers") for one in _list_all(each / kind)
        ]
        others += [] if role else _list_all(each / "vars")
    assigned = {*_list_assigned(runs), *_read_all(others, place.parent)}
    if play.get("vars_files") or _ANY in assigned:
        # Such a file may have any of them, and comes before what the play says.
        found = {}
    assigned |= {str(as_mapping(one).get("name")) for one in as_list(play.get("vars_prompt"))}
    found = {name: value for name, value in found.items() if name not in assigned}
    values = _resolve(found)
    lists = {name: as_list(value) for name, value in found.items() if is_list(value)}
    only = {name for name in defaults if name in found and found[name] == defaults[name]}
    return Variables(values, lists, frozenset(only))


def _resolve(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that are one text, with those that they refer to in their place."""
    values = {name: str(each) for name, each in found.items() if isinstance(each, str | int)}
    for _ in range(_MOST_NESTED):
        known = {name: each for name, each in values.items() if is_known(each)}
        for name, each in values.items():
            values[name] = _replace(each, known)
    return {name: each for name, each in values.items() if is_known(each) and "{%" not in each}


def _replace(text: str, known: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda one: known.get(one[1], one[0]), text)


def _list_main(folder: Path) -> list[Path]:
    return [folder / name for name in ("main.yml", "main.yaml")]


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


def _list_assigned(value: object) -> Iterator[str]:
    """Yield the variables that tasks set; _ANY for a file from elsewhere, which may set any."""
    for each in as_list(value):
        yield from _list_assigned(each)
    for key, each in as_mapping(value).items():
        short = str(key).rpartition(".")[2]
        if short == "register":
            yield str(each)
        elif short == "set_fact":
            text = each if isinstance(each, str) else ""
            yield from (*as_mapping(each), *re.findall(r"(\w+)=", text))
        elif short == "include_vars" and re.search(
            r"_dir|\.\.|^ *(/|\{\{ *\w+ *\}\} *$)", str(each)
        ):
            yield _ANY
        yield from _list_assigned(each)
