"""The plays of a playbook, and who runs their tasks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bot.features.importing.ansible.play import MOST_NESTED, Play
from bot.features.importing.ansible.variables import find_role, list_role_folders, read_setting
from bot.features.importing.sources import (
    SourceError,
    as_list,
    as_mapping,
    is_file_within,
    is_list_of_mappings,
    is_true,
    read_bytes,
    read_yaml,
)
from runbooks._declared_yaml import Document, KeyPath

_OF_PLAYBOOK = frozenset({"name", "tags", "vars"})


@dataclass(frozen=True)
class Entry:
    """An entry of a playbook: a play, or a file of plays that is not read."""

    file: Path
    document: Document
    path: KeyPath
    raw: dict[str, Any]


def is_play(raw: Mapping[str, Any]) -> bool:
    return "hosts" in raw or any(key.rpartition(".")[2] == "import_playbook" for key in raw)


def list_plays(file: Path, document: Document, around: tuple[Path, ...]) -> Iterator[Entry]:
    """Yield the plays of a playbook, and those of playbooks beside it that it imports."""
    for at, raw in enumerate(as_list(document.data)):
        further = _read_playbook(file, raw, around)
        if further is None:
            yield Entry(file, document, (at,), raw)
            continue
        for one in list_plays(*further, (*around, file)):
            # What is said where it is imported comes before what the play says.
            values = {**as_mapping(one.raw.get("vars")), **as_mapping(raw.get("vars"))}
            yield replace(one, raw={**one.raw, **({"vars": values} if values else {})})


def _read_playbook(
    file: Path, raw: Mapping[str, Any], around: tuple[Path, ...]
) -> tuple[Path, Document] | None:
    """Return the playbook that an entry imports, with its file; None if that is not known."""
    modules = [key for key in raw if key.rpartition(".")[2] in ("import_playbook", "include")]
    if len(modules) != 1 or "hosts" in raw or raw.keys() - _OF_PLAYBOOK - {*modules}:
        return None
    found = file.absolute().parent / str(raw[modules[0]])
    place = (around[0] if around else file).absolute().parent
    if len(around) >= MOST_NESTED or not is_file_within(found, place):
        return None
    if any(found.samefile(one) for one in (file, *around)):
        return None
    document = read_yaml(found, read_bytes(found))
    return (found, document) if is_list_of_mappings(document.data) else None


def find_login(play: Play, raw: Mapping[str, Any]) -> tuple[str, bool | None]:
    """Return who runs the tasks of a play, "" for root, and whether they become root.

    The latter is None if nothing says it.
    """
    known = play.variables.known
    own = [raw.get(key) for key in ("remote_user", "user")]
    named = [known.get(key) for key in ("ansible_user", "ansible_ssh_user")] + own
    named.append(read_setting(play.file, "defaults", "remote_user"))
    login = next((str(one) for one in named if one), "the login")
    become = [known.get("ansible_become"), raw.get("become"), raw.get("sudo")]
    become.append(read_setting(play.file, "privilege_escalation", "become") or None)
    said = next((is_true(one) for one in become if one is not None), None)
    if login == "root":
        return "", True
    is_open = said is None and login == "the login" and not raw.keys() & {"become_user"}
    return login, None if is_open and not _is_local(raw) else said is True


def _is_local(raw: Mapping[str, Any]) -> bool:
    """Return whether a play is for the machine where Ansible runs."""
    return raw.get("connection") == "local" or str(raw.get("hosts")) in ("localhost", "127.0.0.1")


def includes_itself(play: Play, file: Path) -> bool:
    return any(file.samefile(one) for one in (play.file, *play.around))


def find_role_file(play: Play, name: str, part: str) -> tuple[Path, Document] | None:
    """Return the file with the tasks of a role that is beside a file; None if there is none."""
    place = find_role(play.file) or play.file.absolute().parent / "x"
    folders = (place.parent, place.parent / "roles", *list_role_folders(play.file))
    names = (f"{part}.yml", f"{part}.yaml", part)
    files = [
        each / name / "tasks" / one
        for each in folders
        for one in names
        if is_file_within(each / name / "tasks" / one, each)
    ]
    is_odd = not files or len(play.around) >= MOST_NESTED or "{{" in name + part
    if is_odd or includes_itself(play, files[0]):
        return None
    try:
        document = read_yaml(files[0], read_bytes(files[0]))
    except SourceError:
        return None
    return (files[0], document) if is_list_of_mappings(document.data) else None


def list_dependencies(role: Path) -> list[Any]:
    """Return the roles that a role depends on, as its meta/main.yml has them."""
    for name in ("main.yml", "main.yaml"):
        file = role / "meta" / name
        if is_file_within(file, role):
            try:
                found = read_yaml(file, read_bytes(file)).data
            except SourceError:
                return []
            return as_list(as_mapping(found).get("dependencies"))
    return []


def list_last(handlers: Sequence[Any], later: Sequence[Any] = ()) -> list[tuple[int, Any]]:
    """Return handlers with their places, of those with one name the last, which Ansible runs.

    later: those of other files that come after them. A name with a value is another one there.
    """
    names = [str(as_mapping(one).get("name") or "") for one in handlers]
    others = {str(as_mapping(one).get("name") or "") for one in later}
    return [
        (at, one)
        for at, one in enumerate(handlers)
        if "listen" in as_mapping(one)
        or not names[at]
        or not (names[at] in names[at + 1 :] or ("{{" not in names[at] and names[at] in others))
    ]
