"""Projects of Semaphore: a backup of a project, or a list of templates, as JSON.

A template names a playbook in a repository. That is imported, under the name of the template.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.features.importing.ansible.importer import import_ansible
from bot.features.importing.ansible.play import Target
from bot.features.importing.drafts import Kind, Outcome
from bot.features.importing.pages import Imported
from bot.features.importing.sources import (
    SourceError,
    as_list,
    as_mapping,
    is_file_within,
    is_list_of_mappings,
    is_mapping,
    read_bytes,
    read_yaml,
)

_ARGUMENTS = "they are not read: look whether they change what the playbook does"
_SETTINGS: Mapping[str, str] = {
    "arguments": _ARGUMENTS,
    "task_params": _ARGUMENTS,
    "environment": "its values are not read: write those of a host where the draft asks",
    "survey_vars": "the request has fields: the draft asks for their values",
}


def import_semaphore(
    file: Path, taken: set[str], repository: Path, target: Target | None = None
) -> list[Imported]:
    """Return the drafts of each template whose playbook is in a directory. Raises SourceError."""
    document = read_yaml(file, read_bytes(file))
    data = document.data
    found = as_mapping(data).get("templates") if is_mapping(data) else data
    if not is_list_of_mappings(found) or not any(
        key in one for one in as_list(found) for key in ("playbook", "app")
    ):
        raise SourceError(
            f"{file}: line 1: is not a project of Semaphore: a list of `templates`, each with a "
            "`playbook`"
        )
    path = ("templates",) if is_mapping(data) else ()
    imported: list[Imported] = []
    for at, raw in enumerate(as_list(found)):
        line = document.make_error((*path, at), "").line
        name = str(raw.get("name") or raw.get("alias") or raw.get("playbook") or "template")
        imported += _import_template(line, name, raw, taken, repository, target)
    return imported


def _import_template(
    line: int,
    name: str,
    raw: dict[str, Any],
    taken: set[str],
    repository: Path,
    target: Target | None,
) -> list[Imported]:
    def leave_out(reason: str) -> list[Imported]:
        return [Imported(name, [], [Outcome(Kind.LEFT_OUT, line, name, reason)])]

    app = str(raw.get("app") or "ansible")
    if app not in ("ansible", ""):
        return leave_out(f"it runs {app}, of which Keyturn makes no runbook")
    playbook = str(raw.get("playbook") or "")
    if not playbook:
        return leave_out("it names no playbook")
    place = repository / playbook
    if not is_file_within(place, repository):
        return leave_out(
            f"{playbook} is not in {repository}: clone the repository, and name it by --repository"
        )
    imported = import_ansible(place, taken, name, target)
    settings = [
        Outcome(Kind.LEFT_OUT, line, key, reason, is_setting=True)
        for key, reason in _SETTINGS.items()
        if raw.get(key)
    ]
    return [
        replace(one, outcomes=[*settings, *one.outcomes]) if at == 0 else one
        for at, one in enumerate(imported)
    ]
