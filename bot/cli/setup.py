"""`keyturn init`, `runbooks` and `sign-in`."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

import click

from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    exit_with_error,
    wants_json,
)
from bot.cli.environment import open_database, read_settings
from bot.cli.options import json_option
from bot.cli.terminal import print_json, print_result, write_output
from connectors.visible_text import quote_text


@click.command("runbooks")
@click.argument("words", nargs=-1, metavar="[RUNBOOK]")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write them as a page, with who may run them and their sudo lines; - is standard output.",
)
@json_option
def list_runbooks(*, words: tuple[str, ...], html: Path | None) -> None:
    """List runbooks, or show those whose name begins with RUNBOOK.

    A check only reads, a change can be undone, an irreversible change cannot. `keyturn policy
    explain` shows who may run a runbook, and who must approve it.

    For example: keyturn runbooks zfs scrub
    """
    from bot.model import runbook_info
    from bot.policy import NoPolicyError
    from bot.policy.loader import load_policy
    from runbooks import list_pending_words

    try:
        policy = load_policy(read_settings().policy)
        hosts = tuple(policy.inventory.hosts.values())
    except NoPolicyError:  # without a valid policy, runbooks are listed without areas
        policy, hosts = None, ()
    found = runbook_info.list_runbook_info(" ".join(words), hosts=hosts)
    pending = [
        name for name in sorted(list_pending_words()) if f"{name} ".startswith(" ".join(words))
    ]
    if pending:
        click.echo(
            f"Not listed, because two people have to enable them: {', '.join(pending)}. "
            "`keyturn runbook enable` shows their files.",
            err=True,
        )
    if not found:
        exit_with_error(
            f"no runbook begins with {quote_text(' '.join(words))}. List all: keyturn runbooks",
            NOT_FOUND,
        )
    if html is not None:
        from bot.cli.catalogue_page import render_catalogue_page

        write_output(html, render_catalogue_page(policy, " ".join(words)))
    elif wants_json():
        print_json([vars(one) for one in found], indent=2)
    elif words:
        click.echo("\n\n".join(one.format_help() for one in found))
    else:
        width = max(len(one.name) for one in found)
        for one in found:
            click.echo(f"{one.name:<{width}}  {one.effect:<7}  {one.summary}")


@click.command("init")
@click.argument(
    "directory", required=False, type=click.Path(path_type=Path, file_okay=False), default=None
)
@click.option(
    "--person",
    "people",
    multiple=True,
    metavar="'NAME <E-MAIL>'",
    help="The first people: give two. Each may request changes, which the other approves.",
)
@click.option("--area", default="", metavar="NAME", help="The area that they own.")
@click.option(
    "--slack",
    "accounts",
    multiple=True,
    metavar="TEAM/USER",
    help="Slack account of each person, in the same order, such as T0123ABC/U0456DEF.",
)
def create_policy_directory(
    *, directory: Path | None, people: tuple[str, ...], area: str, accounts: tuple[str, ...]
) -> None:
    """Create a policy directory with comments, for two people who approve for each other.

    A terminal asks for what the options do not say; without one, and without --person, the people
    are examples to edit. DIRECTORY is the one of the settings if omitted. It also gets the SSH key
    with which Keyturn logs in to hosts.

    For example: keyturn init --person 'Olga Berg' --person 'Dora Lind' --area web
    """
    directory = directory or read_settings().policy
    if not people and not area and sys.stdin.isatty():
        people, area, accounts = _ask_for_people(directory)
    if bool(people) != bool(area) or len(people) == 1:
        exit_with_error(
            "give --person twice, for two people who approve for each other, and --area, which "
            "both own",
            NOT_UNDERSTOOD,
        )
    if accounts and len(accounts) != len(people):
        exit_with_error("give --slack once for each --person, or not at all", NOT_UNDERSTOOD)
    ids = _write_policy(directory, people, area, accounts)
    key = directory / "keys" / "keyturn"
    if _create_key(key):
        click.echo(f"wrote {key} and {key}.pub, which hosts get in authorized_keys")
    if not ids:
        click.echo(f"Edit these files, then run: keyturn policy check {directory}")
        return
    click.echo("Start the service (systemctl enable --now keyturn, or keyturn serve); to sign in:")
    for one in ids:
        click.echo(f"  keyturn sign-in {one}")


def _write_policy(
    directory: Path, people: Sequence[str], area: str, accounts: Sequence[str]
) -> list[str]:
    """Write the files of the policy, and return the ids of its people."""
    from bot.policy import starter

    try:
        parsed = [
            starter.parse_person(typed, account)
            for typed, account in zip_longest(people, accounts, fillvalue="")
        ]
        named = starter.parse_area(area) if area else ""
        paths = starter.write_starter_policy(directory, parsed, named)
    except starter.InvalidStarterError as error:
        exit_with_error(str(error), NOT_UNDERSTOOD)
    except FileExistsError as error:
        exit_with_error(str(error), FAILED)
    except OSError as error:
        exit_with_error(f"cannot write {directory}: {error.strerror}", FAILED)
    for path in paths:
        click.echo(f"wrote {path}")
    return [one.id for one in parsed]


def _ask_for_people(directory: Path) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Ask for two people, their area and their accounts in Slack, if they use it.

    What cannot be written is asked for again.
    """
    from bot.policy import starter

    def ask(question: str, parse: Callable[[str], object], default: str | None = None) -> str:
        def check(typed: str) -> str:
            try:
                parse(typed)
            except starter.InvalidStarterError as error:
                raise click.UsageError(str(error)) from None
            return typed

        return click.prompt(question, value_proc=check, default=default)

    try:
        starter.refuse_existing_policy(directory)
    except FileExistsError as error:
        exit_with_error(str(error), FAILED)
    click.echo("Two people approve for each other. You can add others later.")
    people = tuple(
        ask(f"{which} person, as NAME <E-MAIL> or NAME", starter.parse_person)
        for which in ("First", "Second")
    )
    area = ask("Name of the area that both own", starter.parse_area, "production")
    if not click.confirm("Do you use Slack?", default=False):
        return people, area, ()
    click.echo("In Slack: profile, ⋮, Copy member ID; the team is in app.slack.com/client/T….")
    accounts = tuple(
        ask(f"{one}, as TEAM/USER", lambda typed, one=one: starter.parse_person(one, typed))
        for one in people
    )
    return people, area, accounts


def _create_key(file: Path) -> bool:
    """Create the SSH key of Keyturn unless it is there; return whether it was created."""
    program = shutil.which("ssh-keygen")
    if file.exists():
        return False
    if program is None:
        click.echo(f"ssh-keygen is missing, so create the SSH key {file} yourself", err=True)
        return False
    command = [program, "-q", "-t", "ed25519", "-N", "", "-C", "keyturn", "-f", str(file)]
    if subprocess.run(command, check=False).returncode:
        exit_with_error(f"ssh-keygen did not create {file}", FAILED)
    return True


@click.command("sign-in")
@click.argument("person")
@json_option
def create_sign_in_link(*, person: str) -> None:
    """Print a link that signs PERSON in on the web, once, within ten minutes.

    For example: keyturn sign-in olga
    """
    from bot.audit import change_log as log
    from bot.audit import events
    from bot.auth import sessions
    from bot.policy.loader import load_policy

    settings = read_settings()
    with open_database() as database:
        known = load_policy(settings.policy).find_person(person)
        if known is None:
            exit_with_error(
                f"unknown person {person}: add them to {settings.policy / 'people.yaml'}",
                NOT_FOUND,
            )
        with database.transaction() as tx:
            token = sessions.create_sign_in_link(tx, known.id)
            log.append_entry(tx, events.SignInLinkCreated(source="cli"), person=known.id)
    link = f"{settings.here}/sign-in/{token}"
    if not settings.base_url:
        click.echo(
            "KEYTURN_BASE_URL is not set, so this link may open on this machine only", err=True
        )
    print_result({"person": known.id, "link": link}, [link])
