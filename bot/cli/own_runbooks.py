"""`keyturn runbook …`: write, try, test and enable your own runbooks."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bot.cli.context import (
    ACTING_PERSON_ADVICE,
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    REFUSED,
    CommandEnvironment,
    exit_on_errors,
    exit_with_error,
    open_service,
)
from bot.cli.environment import EXECUTES_ALL, read_settings
from bot.cli.options import json_option, pass_environment
from bot.cli.sections import CommandGroup
from bot.cli.terminal import print_result
from bot.model.text import format_count

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from bot.cli.runbook_kit.recordings import Recorder
    from bot.queries.own_runbooks import OwnRunbookState
    from connectors.fleet import Fleet
    from runbooks import AnyRunbook, Plan, Report, Step

_directory_option = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the runbooks. Default: KEYTURN_RUNBOOKS, or else the current directory.",
)


@click.group("runbook", cls=CommandGroup)
def runbook_commands() -> None:
    """Write, try, test and enable your own runbooks."""


@runbook_commands.command("new")
@click.argument("words")
@click.option("--change", is_flag=True, help="A change; otherwise a check, which only reads.")
@click.option(
    "--from",
    "command",
    metavar="COMMAND",
    help="Write a page of YAML from what this command prints, which only reads.",
)
@click.option("--on", "host", metavar="HOST", help="Where COMMAND runs. Default: this machine.")
@_directory_option
@pass_environment
def create_runbook(
    environment: CommandEnvironment,
    *,
    words: str,
    change: bool,
    command: str | None,
    host: str | None,
    directory: Path | None,
) -> None:
    """Write the files of a runbook named WORDS. They fail tests and lint until you fill them.

    With --from, it is one page of YAML; otherwise a class in Python with its connector and tests.

    For example: keyturn runbook new "swap check" --from "cat /proc/swaps" --on web1
    """
    from bot.cli.runbook_kit import new_page, new_runbook

    place = _get_directory(directory)
    with exit_on_errors():
        if command is None:
            files = new_runbook.make_files(words, is_change=change)
        else:
            run = new_page.split_command(command)
            output = _read_host(environment, host, run) if host else _read_here(run)
            files = new_page.make_page(words, command, output, is_change=change)
        written = [str(file) for file in new_runbook.write_files(place, files)]
    configured = os.environ.get("KEYTURN_RUNBOOKS")
    is_known = configured and Path(configured).resolve() == place.resolve()
    setting = "" if is_known else f"KEYTURN_RUNBOOKS={shlex.quote(str(place.resolve()))} "
    lines = [f"wrote {file}" for file in written]
    them = "them" if len(written) > 1 else "it"
    advice = f"Fill {them} in, then run: {setting}keyturn runbook lint {words}"
    print_result({"files": written}, [*lines, advice])


def _read_here(run: "Sequence[str]") -> str:
    """Return what a command prints on this machine; it only reads."""
    try:
        answer = subprocess.run(run, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        exit_with_error(f"{run[0]} did not run: {error}", FAILED)
    return answer.stdout


def _read_host(environment: CommandEnvironment, host: str, run: "Sequence[str]") -> str:
    """Return what a command prints on a host, with the login that only reads."""
    from connectors.command import Query, Shell

    with _open_fleet(environment) as fleet:
        # The output matters, whatever its status says of the host.
        statuses = frozenset(range(126))
        return fleet.run_query(host, Query(Shell(tuple(run)), str, statuses))


@contextmanager
def _open_fleet(environment: CommandEnvironment) -> "Generator[Fleet]":
    from bot.policy.loader import load_policy
    from connectors.fleet import Fleet
    from connectors.ssh_pool import SshPool

    directory = environment.settings.policy
    fleet = Fleet(load_policy(directory).inventory, SshPool(directory))
    try:
        yield fleet
    finally:
        fleet.close()


@runbook_commands.command("explain")
@click.argument("words", nargs=-1, required=True, metavar="RUNBOOK")
def explain_runbook(*, words: "tuple[str, ...]") -> None:
    """Say in words what a declared runbook reads, decides and runs, with its sudo lines.

    For example: keyturn runbook explain nfs threads set
    """
    from bot.cli.runbook_kit.explain import explain_page
    from runbooks._declared import is_declared
    from runbooks._declared_yaml import PageError

    chosen = [one for one in _choose(words) if is_declared(one)]
    if not chosen:
        exit_with_error(f"{' '.join(words)} is Python: read its class instead", NOT_FOUND)
    for runbook in chosen:
        try:
            click.echo("\n".join(explain_page(runbook)))
        except PageError as error:
            exit_with_error(f"{runbook.words}: {error}", FAILED)


@runbook_commands.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of declared runbooks, with which editors complete and check them.

    For example: keyturn runbook schema > runbook.schema.json
    """
    from runbooks._declared_format import RunbookPage

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    click.echo(json.dumps(schema | RunbookPage.model_json_schema(), indent=2))


@runbook_commands.command("try")
@click.argument("words", nargs=-1, required=True, metavar="RUNBOOK HOST [VALUE]…")
@click.option(
    "--record",
    metavar="NAME",
    help="Store what the host returned as test data, without secrets: before, after, undone.",
)
@_directory_option
@pass_environment
def try_runbook(
    environment: CommandEnvironment,
    *,
    words: "tuple[str, ...]",
    record: str | None,
    directory: Path | None,
) -> None:
    """Read HOST and print the plan and the sudo lines of a request. Changes nothing.

    Uses the login that only reads, if the host has one. No run is recorded. It executes the file,
    so where Keyturn's keys are, the runbook has to be enabled.

    For example: keyturn runbook try conntrack set lb1 524288 --record before
    """
    from bot.cli.runbook_kit.explain import describe_readings
    from bot.cli.runbook_kit.recordings import Recorder, evaluate_request
    from connectors.errors import HostError
    from runbooks import Refused

    request = _parse_request(words)
    with exit_on_errors(), _open_fleet(environment) as fleet:
        recorder = Recorder(fleet.run_query)
        try:
            outcome = evaluate_request(request, recorder.run_query)
            shown = _describe_outcome(fleet, request, outcome)
            recorded = _record(request, recorder, record, directory) if record else ""
        except Refused as refused:
            exit_with_error(f"refused: {refused}", REFUSED)
        except HostError as error:
            shown = describe_readings(request, recorder.answers)
            click.echo("\n".join(shown), err=True)
            exit_with_error(str(error), FAILED)
        read = describe_readings(request, recorder.answers)
    sudo_lines = _list_sudo_lines(fleet, request)
    lines = [*read, *shown, *_describe_sudo(request.target, sudo_lines)]
    if recorded:
        lines += ["", f"wrote {recorded}"]
    data = {
        "outcome": json.loads(json.dumps(asdict(outcome), default=str)),
        "sudo_lines": sudo_lines,
        "recording": recorded,
    }
    print_result(data, lines)


@runbook_commands.command("test")
@click.argument("words", nargs=-1, metavar="[RUNBOOK]")
@_directory_option
@json_option
def run_tests(*, words: "tuple[str, ...]", directory: Path | None) -> None:
    """Test your own runbooks, or those whose name begins with RUNBOOK.

    Every field must refuse hostile values. With recordings, the plan of a change must have steps
    before, none after, and the same steps again when it is undone, and sudo must allow each of
    its commands. Exit status 1 if a test fails, or a runbook of your own lacks a recording. It
    executes the files, so where Keyturn's keys are, the runbooks have to be enabled.

    For example: keyturn runbook test hugepages set
    """
    from bot.cli.runbook_kit.runbook_tests import test_runbook
    from runbooks._catalogue import is_own

    place, chosen = _get_directory(directory), _choose(words)
    found = {one.words: test_runbook(one, place) for one in chosen}
    lines = [
        f"{'ok' if one.passed else 'untested' if one.passed is None else 'failed':<8}  "
        f"{name}: {one.name}: {one.message}"
        for name, results in found.items()
        for one in results
    ]
    data = {name: [asdict(one) for one in results] for name, results in found.items()}
    print_result(data, lines)
    failed = [
        one
        for runbook in chosen
        for one in found[runbook.words]
        if one.passed is False or (one.passed is None and is_own(runbook))
    ]
    sys.exit(FAILED if failed else 0)


@runbook_commands.command("lint")
@click.argument("words", nargs=-1, metavar="[RUNBOOK]")
@json_option
def lint_runbooks(*, words: "tuple[str, ...]") -> None:
    """Check what your own runbooks must have, or those whose name begins with RUNBOOK.

    Texts, an example that can be parsed, no field with free text, a sudo rule for each command of
    root, an undo or a reason for none, what is down meanwhile, and scripts by shellcheck, if it is
    installed. Exit status 1 for a problem. It executes the files, so where Keyturn's keys are, the
    runbooks have to be enabled.

    For example: keyturn runbook lint hugepages set
    """
    from bot.cli.runbook_kit import shell_lint
    from bot.cli.runbook_kit.lint import lint_runbook

    chosen = _choose(words)
    found = {one.words: [*lint_runbook(one), *shell_lint.lint_scripts(one)] for one in chosen}
    if not shell_lint.is_installed():
        for name in (one.words for one in chosen if shell_lint.has_scripts(one)):
            click.echo(f"{name}: {shell_lint.MISSING}", err=True)
    lines = [f"{name}: {problem}" for name, problems in found.items() for problem in problems]
    print_result(found, lines or [f"No problems in {format_count(len(found), 'runbook')}."])
    sys.exit(FAILED if lines else 0)


@runbook_commands.command("enable")
@click.argument("words", nargs=-1, metavar="[RUNBOOK]")
@click.option("--as", "person", default="", help="Who acts: an id of people.yaml.")
@click.option("--alone", is_flag=True, help="Enable it alone, if no other person could.")
@pass_environment
def enable_runbook(
    environment: CommandEnvironment, *, words: "tuple[str, ...]", person: str, alone: bool
) -> None:
    """Enable one of your own RUNBOOKs as its files are now. Two people have to.

    A runbook that is new or was changed is not executed until both have. Review the files first,
    and restart Keyturn and its workers afterwards. Without RUNBOOK, list your own runbooks, their
    files and who enabled them.

    For example: keyturn runbook enable hugepages set --as adam
    """
    from bot.queries.own_runbooks import list_states

    if not words:
        # Only a transaction that can write has the key, and with it checks who signed an entry.
        with environment.open_database() as database, database.transaction() as tx:
            states = list_states(tx)
        lines = [line for one in states for line in _describe_state(one)]
        print_result(
            [_state_to_data(one) for one in states],
            lines,
            empty_message="No runbooks of your own.",
        )
        return
    if not person:
        exit_with_error(f"Missing option '--as'. {ACTING_PERSON_ADVICE}", NOT_UNDERSTOOD)
    with open_service(environment, person) as service:
        state = service.enable_runbook(" ".join(words), person=person, alone=alone)
    lines = _describe_state(state)
    if state.is_enabled:
        lines.append("Restart Keyturn and its workers: they load it when they start.")
    else:
        lines.append(f"Another person: keyturn runbook enable {state.words} --as PERSON")
    print_result(_state_to_data(state), lines)


def _get_directory(directory: Path | None) -> Path:
    """Return the directory that is meant. Reading the settings also reads KEYTURN_RUNBOOKS."""
    read_settings()
    return directory or Path(os.environ.get("KEYTURN_RUNBOOKS") or ".")


def _load_for_author(typed: str) -> None:
    """Load what is not enabled too, but never where Keyturn's keys are.

    typed: the words of the chosen runbooks, of which none may be left out.
    """
    from runbooks import list_pending_words

    click.get_current_context().meta[EXECUTES_ALL] = True
    read_settings()
    names = (f"{name} " for name in sorted(list_pending_words()))
    pending = [
        name.strip()
        for name in names
        if name.startswith(f"{typed} ") or f"{typed} ".startswith(name) or not typed
    ]
    if pending:
        exit_with_error(
            f"{', '.join(pending)}: not enabled, and this would execute the file where Keyturn's "
            "keys are. Run it on another machine, or enable it first: "
            f"keyturn runbook enable {pending[0]}",
            REFUSED,
        )


def _choose(words: "Sequence[str]") -> "list[type[AnyRunbook]]":
    """Return the runbooks whose name begins with these words; without any, your own."""
    from runbooks import load_catalogue
    from runbooks._catalogue import is_own

    prefix = " ".join(words)
    _load_for_author(prefix)
    found = [
        runbook
        for name, runbook in load_catalogue().items()
        if (f"{name} ".startswith(f"{prefix} ") if prefix else is_own(runbook))
    ]
    if not found:
        exit_with_error(
            f"no runbook begins with {prefix!r}: `keyturn runbooks` lists them, and "
            "KEYTURN_RUNBOOKS names the directory of your own"
            if prefix
            else "you have no runbooks of your own: set KEYTURN_RUNBOOKS, or name a runbook",
            NOT_FOUND,
        )
    return found


def _parse_request(words: "Sequence[str]") -> "AnyRunbook":
    from bot.model.request_form import find_runbook, parse_request
    from runbooks._declared import check_page
    from runbooks._declared_yaml import PageError

    _load_for_author(" ".join(words))
    with exit_on_errors():
        runbook, values = find_runbook(words)
        try:
            check_page(runbook)
        except PageError as error:
            exit_with_error(f"{runbook.words}: {error}", NOT_UNDERSTOOD)
        return parse_request(runbook, values)


def _record(request: "AnyRunbook", recorder: "Recorder", name: str, directory: Path | None) -> str:
    from bot.cli.runbook_kit import recordings
    from bot.model.redaction import Redactor

    if not name.isidentifier():
        exit_with_error(f"{name!r} is not a name: use before, after or undone", NOT_UNDERSTOOD)
    redactor = Redactor(read_settings().secrets)
    made = recordings.make_recording(request, recorder, redactor.redact_text)
    file = recordings.make_recording_path(_get_directory(directory), type(request), name)
    with exit_on_errors():
        recordings.write_recording(file, made)
    return str(file)


def _describe_outcome(
    fleet: "Fleet", request: "AnyRunbook", outcome: "Plan | Report"
) -> "list[str]":
    from bot.cli.formatting import format_report
    from runbooks import Change, Report

    if isinstance(outcome, Report):
        return [outcome.summary, *format_report(asdict(outcome))]
    lines = [outcome.current_state, *(f"  ! {note}" for note in outcome.notes)]
    for number, step in enumerate(outcome.steps, start=1):
        lines += _describe_step(fleet, number, step)
    if not outcome.steps:
        lines.append("  No changes needed.")
    if isinstance(request, Change) and outcome.steps:
        legs = ", ".join(map(str, request.takes_down())) or "nothing"
        lines.append(f"  Takes down: {legs}")
    return lines


def _describe_step(fleet: "Fleet", number: int, step: "Step") -> "Iterator[str]":
    from runbooks import NoUndo

    yield f"  {number}. {step.title} on {step.host}"
    if step.before or step.after:
        yield f"     {step.before or '-'} → {step.after or '-'}"
    yield f"     $ {fleet.resolve_command(step.host, step.do)}"
    if isinstance(step.undo, NoUndo):
        yield f"     cannot be undone: {step.undo.reason}"
    else:
        yield f"     undo: {fleet.resolve_command(step.host, step.undo)}"


def _list_sudo_lines(fleet: "Fleet", request: "AnyRunbook") -> list[str]:
    from bot.hosts import sudo_rules

    host = fleet.inventory[request.target]
    grants = sudo_rules.list_host_sudo_grants(host, {type(request).words: type(request)})
    if not sudo_rules.group_grants_by_login(host, grants):
        return []
    # Without the two lines that say how to install the file.
    return [line for line in sudo_rules.format_sudoers(host, grants).splitlines()[2:] if line]


def _describe_sudo(host: str, lines: "Sequence[str]") -> list[str]:
    if not lines:
        return ["", f"It needs no sudo lines on {host}."]
    return ["", f"Sudo lines that it needs on {host}:", *(f"  {line}" for line in lines)]


def _describe_state(state: "OwnRunbookState") -> list[str]:
    enabled = "enabled" if state.is_enabled else "not enabled"
    people = f", confirmed by {' and '.join(state.people)}" if state.people else ""
    files = [f"  {module:<32}  sha256 {digest}" for module, digest in state.files.items()]
    return [f"{state.words}: {enabled}{people}", *files]


def _state_to_data(state: "OwnRunbookState") -> "dict[str, Any]":
    return asdict(state) | {"is_enabled": state.is_enabled}
