"""`keyturn import …`: drafts of runbooks from jobs of other tools."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bot.cli.context import FAILED, exit_on_errors
from bot.cli.options import json_option
from bot.cli.sections import CommandGroup
from bot.cli.terminal import print_result

if TYPE_CHECKING:
    from bot.features.importing.drafts import Draft
    from bot.features.importing.pages import Imported

_FILE = click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
_directory_option = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("drafts"),
    show_default=True,
    help="Where drafts are written, in runbooks/.",
)


SYSTEM_NAMES = (
    "almalinux8 almalinux9 debian12 debian13 rhel8 rhel9 rocky8 rocky9 ubuntu22.04 ubuntu24.04"
)
_system_option = click.option(
    "--system",
    type=click.Choice(SYSTEM_NAMES.split()),
    default="debian12",
    show_default=True,
    metavar="SYSTEM",
    help=f"What the hosts are: drafts refuse others, if it matters. One of {SYSTEM_NAMES}.",
)
_vars_option = click.option(
    "--vars",
    "values",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file of variables of your inventory, such as group_vars/web.yml. May be repeated.",
)


@click.group("import", cls=CommandGroup)
def import_commands() -> None:
    """Make drafts of runbooks from jobs of Rundeck, Ansible, AWX and Semaphore.

    Each step is carried over with its reading and its undo, or blind (lines of a shell, of which
    Keyturn cannot tell what they do), or left out with the reason. A draft asks at its place,
    with the word TODO, what only a person can know, and cannot be enabled before.
    """


@import_commands.command("rundeck")
@_FILE
@_directory_option
@json_option
def import_rundeck_jobs(*, file: Path, directory: Path) -> None:
    """Make drafts from the job definitions of Rundeck in FILE, as YAML or XML.

    For example: keyturn import rundeck jobs.yaml
    """
    from bot.features.importing.rundeck import import_rundeck

    _import(directory, lambda taken: import_rundeck(file, taken))


@import_commands.command("ansible")
@_FILE
@_system_option
@_vars_option
@_directory_option
@json_option
def import_playbook(*, file: Path, system: str, values: Sequence[Path], directory: Path) -> None:
    """Make drafts from the plays or tasks of Ansible in FILE.

    For example: keyturn import ansible site.yml
    """
    _import_plays(file, system, values, directory)


@import_commands.command("awx")
@_FILE
@_system_option
@_vars_option
@_directory_option
@json_option
def import_awx_playbook(
    *, file: Path, system: str, values: Sequence[Path], directory: Path
) -> None:
    """Make drafts from the playbook in FILE, which a job template of AWX runs.

    For example: keyturn import awx site.yml
    """
    _import_plays(file, system, values, directory)


def _import_plays(file: Path, system: str, values: Sequence[Path], directory: Path) -> None:
    from bot.features.importing.ansible.importer import import_ansible, read_target

    _import(
        directory, lambda taken: import_ansible(file, taken, target=read_target(system, values))
    )


@import_commands.command("semaphore")
@_FILE
@click.option(
    "--repository",
    type=click.Path(path_type=Path, file_okay=False),
    help="A clone of the repository with the playbooks. Default: where FILE is.",
)
@_system_option
@_vars_option
@_directory_option
@json_option
def import_semaphore_project(
    *,
    file: Path,
    repository: Path | None,
    system: str,
    values: Sequence[Path],
    directory: Path,
) -> None:
    """Make drafts from the templates of a Semaphore project in FILE, as JSON.

    For example: keyturn import semaphore backup.json --repository ~/playbooks
    """
    from bot.features.importing.ansible.importer import read_target
    from bot.features.importing.semaphore import import_semaphore

    place = repository or file.parent
    _import(
        directory,
        lambda taken: import_semaphore(file, taken, place, read_target(system, values)),
    )


def _import(directory: Path, read: "Callable[[set[str]], list[Imported]]") -> None:
    from runbooks import load_catalogue

    taken = {*load_catalogue(), *_list_written(directory)}
    with exit_on_errors():
        imported = read(taken)
        drafts = [draft for job in imported for draft in job.drafts]
        questions = {draft.words: draft.list_questions() for draft in drafts}
        for draft in drafts:
            _write(directory, draft)
    lines = [line for job in imported for line in _describe(job, directory, questions)]
    print_result([_to_data(job, directory, questions) for job in imported], lines)
    if not any(job.outcomes for job in imported):
        sys.exit(FAILED)


def _list_written(directory: Path) -> Iterator[str]:
    for file in directory.glob("runbooks/*.yaml"):
        yield file.stem.replace("_", " ")


def _write(directory: Path, draft: "Draft") -> None:
    file = directory / draft.path
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with file.open("x", encoding="utf-8") as opened:
        opened.write(draft.render())
    file.chmod(0o644)


def _describe(
    job: "Imported", directory: Path, questions: "Mapping[str, Sequence[str]]"
) -> Iterator[str]:
    from bot.model.text import format_count

    yield job.name
    for one in job.outcomes:
        note = f" ({one.note})" if one.note else ""
        place = f"{one.file}: " if one.file else ""
        yield f"  line {one.line:<4} {one.kind:<12} {place}{one.what}{note}"
    counts = Counter(str(one.kind) for one in job.outcomes if not one.is_setting)
    shown = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    yield f"  {shown or 'it has no steps'}"
    for draft in job.drafts:
        open_questions = questions[draft.words]
        yield f"  wrote {directory / draft.path}"
        if open_questions:
            count = format_count(len(open_questions), "open question")
            yield f"    a draft with {count}, not to be enabled yet:"
            yield from (f"    {question}" for question in open_questions)
        else:
            lint = f"KEYTURN_RUNBOOKS={shlex.quote(str(directory))} keyturn runbook lint"
            yield f"    complete: read it, then run `{lint} {draft.words}`"
    yield ""


def _to_data(
    job: "Imported", directory: Path, questions: "Mapping[str, Sequence[str]]"
) -> dict[str, Any]:
    return {
        "name": job.name,
        "steps": [
            {
                "file": one.file or job.file,
                "line": one.line,
                "step": one.what,
                "became": str(one.kind),
                "note": one.note,
            }
            for one in job.outcomes
            if not one.is_setting
        ],
        "settings": [
            {"file": one.file or job.file, "line": one.line, "setting": one.what, "note": one.note}
            for one in job.outcomes
            if one.is_setting
        ],
        "drafts": [
            {
                "words": draft.words,
                "file": str(directory / draft.path),
                "questions": [*questions[draft.words]],
            }
            for draft in job.drafts
        ],
    }
