"""`keyturn policy …`: validate, summarise and explain policies."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    REFUSED,
    CommandEnvironment,
    exit_on_errors,
    exit_with_error,
    wants_json,
)
from bot.cli.options import pass_environment
from bot.cli.sections import CommandGroup
from bot.cli.terminal import format_sentence_times, print_json, print_result, write_output

if TYPE_CHECKING:
    from bot.policy import Policy, PolicyProblem
    from bot.policy.explain import Preview, PreviewQuestion

_DIRECTORY_TYPE = click.Path(path_type=Path, exists=True, file_okay=False)
_PAGE_TYPE = click.Path(path_type=Path, dir_okay=False, writable=True)


@click.group("policy", cls=CommandGroup)
def policy_commands() -> None:
    """Validate and explain the policy, and compare it with another."""


@policy_commands.command("check")
@click.argument("directory", type=_DIRECTORY_TYPE, required=False)
@pass_environment
def check_policy(environment: CommandEnvironment, *, directory: Path | None) -> None:
    """Validate the policy directory, and print each error with its file, line and fix.

    Probable typing errors are printed as warnings. A directory that others may write is an error:
    Keyturn would not use it.
    """
    from bot.model.text import escape_to_one_line
    from bot.policy import NoPolicyError
    from bot.policy.lint import list_warnings
    from bot.policy.loader import check_access, load_policy
    from connectors.permissions import list_trusted_owners
    from runbooks import load_catalogue

    with exit_on_errors():
        try:
            place = directory or environment.settings.policy
            check_access(place, list_trusted_owners(environment.settings.data))
            found = load_policy(place)
            if found.tree_problems:
                raise NoPolicyError(*found.tree_problems)
        except NoPolicyError as error:
            if wants_json():
                _print_check_as_json(error.problems)
            else:
                for problem in error.problems:
                    click.echo(f"keyturn: {escape_to_one_line(str(problem))}", err=True)
            sys.exit(FAILED)
    warnings = list_warnings(found, load_catalogue())
    people, hosts = len(found.organisation.people), len(found.inventory.hosts)
    if wants_json():
        _print_check_as_json([], warnings, version=found.version, people=people, hosts=hosts)
        return
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    counts = f"{people} {'people' if people != 1 else 'person'}, {hosts} host{'s' * (hosts != 1)}"
    click.echo(f"valid, version {found.version}: {counts}")


def _print_check_as_json(
    problems: "Sequence[PolicyProblem]",
    warnings: "Sequence[PolicyProblem]" = (),
    **extra: str | int,
) -> None:
    """Print the result of a check. warnings: probable typing errors."""
    data = {"ok": not problems, **extra}
    data |= {"problems": [*map(vars, problems)], "warnings": [*map(vars, warnings)]}
    print_json(data, indent=2)


@policy_commands.command("page")
@click.argument("directory", type=_DIRECTORY_TYPE, required=False)
@click.option("--person", default="", help="Only what this person may do.")
@click.option(
    "--html", type=_PAGE_TYPE, help="Write an HTML page to this file; - is standard output."
)
@pass_environment
def print_policy_page(
    environment: CommandEnvironment, *, directory: Path | None, person: str, html: Path | None
) -> None:
    """Print what the policy allows each person, as a matrix.

    Each answer is computed by evaluating the rules. DIRECTORY: another policy than the one in
    use.

    For example: keyturn policy page --person dora
    """
    from bot.cli.policy_page import render_html, render_text
    from bot.model.runbook_info import list_runbook_info
    from bot.policy.loader import load_policy
    from bot.policy.matrix import build_matrix

    with exit_on_errors():
        found = load_policy(directory or environment.settings.policy)
        if person and found.find_person(person) is None:
            exit_with_error(f"unknown person {person}: use an id of people.yaml", NOT_FOUND)
        matrix = build_matrix(found, list_runbook_info(), now=datetime.now(UTC), person=person)
        if html is not None:
            write_output(html, render_html(matrix))
        elif wants_json():
            print_json(matrix.to_data, indent=2)
        else:
            click.echo(render_text(matrix))


@policy_commands.command("signers")
@click.argument("directory", type=_DIRECTORY_TYPE, required=False)
@click.option(
    "--table",
    "is_table",
    is_flag=True,
    help="Print kind, fingerprint and comment of each key, what its person signs, and who lacks "
    "one.",
)
@pass_environment
def print_signers(
    environment: CommandEnvironment, *, directory: Path | None, is_table: bool
) -> None:
    """Print the keys with which people sign plans, as a file of signers for ssh-keygen.

    Keep the file yourself: it says whose signatures you accept.

    \b
    keyturn policy signers > signers
    keyturn policy signers --table
    """
    from bot.cli.policy_page import render_signers
    from bot.hosts.host_files import format_signers, list_signers
    from bot.model.runbook_info import list_runbook_info
    from bot.policy.loader import load_policy
    from bot.policy.matrix import build_matrix

    with exit_on_errors():
        found = load_policy(directory or environment.settings.policy)
        if not (wants_json() or is_table):
            click.echo(format_signers(list_signers(found)), nl=False)
            return
        signers = build_matrix(found, list_runbook_info(), now=datetime.now(UTC)).signers
    print_result([*map(asdict, signers)], render_signers(signers), indent=2)


@policy_commands.command("explain")
@click.argument("person")
@click.argument("words", nargs=-1, required=True, metavar="RUNBOOK HOST…")
@click.option(
    "--for", "behalf", default="", metavar="ID", help="The person that an agent acts for."
)
@pass_environment
def explain_request(
    environment: CommandEnvironment, *, person: str, words: tuple[str, ...], behalf: str
) -> None:
    """Show whether PERSON may run RUNBOOK on the hosts, and who must approve it.

    \b
    keyturn policy explain dana abusers clear 'lb*'
    keyturn policy explain agent:triage-bot host changes lb1 --for dana

    Exit status 0 if they may request it on every host, 4 if not, 2 for an unknown runbook or host.
    """
    from bot.policy.explain import parse_preview_question
    from bot.policy.loader import load_policy

    with exit_on_errors():
        found = load_policy(environment.settings.policy)
        preview = _preview_request(
            environment, found, parse_preview_question(found, words), person, behalf
        )
    known = found.find_person(person)
    lines = preview.describe(subject=known.name if known else person)
    print_result(preview.to_data, [*map(format_sentence_times, lines)], indent=2)
    sys.exit(0 if preview.allowed else REFUSED)


def _preview_request(
    environment: CommandEnvironment,
    policy: "Policy",
    question: "PreviewQuestion",
    person: str,
    behalf: str,
) -> "Preview":
    """Return the preview, also if there is no database yet."""
    from bot.policy.explain import evaluate_preview
    from bot.queries.preview import preview_request

    if not environment.has_database():
        return evaluate_preview(
            policy, question, person=person, source="cli", now=time.time_ns() // 1000
        )
    from bot.queries.policy_facts import apply_facts

    facts = environment.load_hooks().policy_facts if environment.load_hooks else ()
    with environment.open_database() as database, database.reading() as tx:
        policy = apply_facts(facts, tx, policy)
        return preview_request(tx, policy, question, person=person, source="cli", behalf=behalf)
