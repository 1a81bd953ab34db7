"""`keyturn init`, `runbooks` and `sign-in`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.cli.client import print_result
from bot.cli.context import NOT_FOUND, exit_on_errors, exit_with_error
from bot.cli.environment import open_database, read_settings
from bot.cli.options import json_option
from connectors.command import quote_text

if TYPE_CHECKING:
    from bot.policy import Policy


@click.command("runbooks")
@click.argument("words", nargs=-1, metavar="[RUNBOOK]")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="Write them as a page, with who may run them and their sudo lines; - is standard output.",
)
@json_option
def list_runbooks(*, words: tuple[str, ...], html: Path | None, as_json: bool) -> None:
    """List runbooks, or show those whose name begins with RUNBOOK.

    A check only reads, a change can be undone, an irreversible change cannot. `keyturn policy
    explain` shows who may run a runbook, and who must approve it.

    For example: keyturn runbooks zfs scrub
    """
    from bot.model import runbook_info
    from bot.policy import NoPolicyError
    from bot.policy.loader import load_policy

    try:
        policy = load_policy(read_settings().policy)
        hosts = tuple(policy.inventory.hosts.values())
    except NoPolicyError:  # without a valid policy, runbooks are listed without areas
        policy, hosts = None, ()
    found = runbook_info.list_runbook_info(" ".join(words), hosts=hosts)
    if not found:
        exit_with_error(
            f"no runbook begins with {quote_text(' '.join(words))}. List all: keyturn runbooks",
            NOT_FOUND,
        )
    if html is not None:
        _write_page(html, policy, " ".join(words))
    elif as_json:
        click.echo(json.dumps([vars(one) for one in found], indent=2, ensure_ascii=False))
    elif words:
        click.echo("\n\n".join(one.format_help() for one in found))
    else:
        width = max(len(one.name) for one in found)
        for one in found:
            click.echo(f"{one.name:<{width}}  {one.effect:<7}  {one.summary}")


def _write_page(file: Path, policy: "Policy | None", prefix: str) -> None:
    from bot.cli.catalogue_page import render_catalogue_page

    page = render_catalogue_page(policy, prefix)
    if str(file) == "-":
        click.echo(page)
        return
    with exit_on_errors():
        file.write_text(page, encoding="utf-8")
    click.echo(f"wrote {file}")


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path))
def create_policy_directory(directory: Path) -> None:
    """Create a starter policy directory with comments.

    For example: keyturn init policy
    """
    from bot.policy import starter

    with exit_on_errors():
        for path in starter.write_starter_policy(directory):
            click.echo(f"wrote {path}")
    click.echo(f"Edit these files, then run: keyturn policy check {directory}")


@click.command("sign-in")
@click.argument("person")
@json_option
def create_sign_in_link(*, person: str, as_json: bool) -> None:
    """Print a link that signs PERSON in on the web, once, within ten minutes.

    For example: keyturn sign-in olga
    """
    from bot.audit import change_log as log
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
            log.append_entry(tx, "sign-in link created", person=known.id, source="cli")
    link = f"{settings.here}/sign-in/{token}"
    if not settings.base_url:
        click.echo(
            "KEYTURN_BASE_URL is not set, so this link may open on this machine only", err=True
        )
    print_result({"person": known.id, "link": link}, [link], as_json=as_json)


COMMANDS = (list_runbooks, create_policy_directory, create_sign_in_link)
