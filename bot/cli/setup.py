"""`keyturn init`, `runbooks` and `sign-in`."""

from pathlib import Path

import click

from bot.cli.context import NOT_FOUND, exit_on_errors, exit_with_error, wants_json
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
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
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
