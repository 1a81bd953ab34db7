"""The command line: `keyturn …`."""

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.cli.audit_log import export, show
from bot.cli.backup import backup, copy, restore
from bot.cli.client import as_json, print_result
from bot.cli.context import FAILED, NOT_FOUND, Place, plainly, stop
from bot.cli.db import db
from bot.cli.delegations import COMMANDS as MANDATES
from bot.cli.history import COMMANDS as LOOKING
from bot.cli.hosts import COMMANDS as HOSTS
from bot.cli.inventory import inventory, sudoers
from bot.cli.log_admin import acknowledge, erase, rotate_key
from bot.cli.policy import policy
from bot.cli.runs import COMMANDS as RUNS
from bot.cli.schedules import schedule
from bot.cli.second_factors import factors
from bot.cli.sections import STATUS, Family, Keyturn
from bot.cli.stop import COMMANDS
from bot.cli.tokens import token
from bot.cli.verify import verify
from bot.cli.wait_report import report
from bot.cli.webhooks import hooks
from connectors.command import quote_text

if TYPE_CHECKING:
    from bot.db.database import Database
    from bot.maintenance.installation import Installation
    from bot.settings import Settings

# Heavy modules are loaded by the command that needs them: `keyturn --help` answers at once.


@click.group(
    cls=Keyturn,
    epilog=STATUS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "obj": lambda: _settings().policy,
    },
)
@click.version_option(version("keyturn"), prog_name="keyturn")
def main() -> None:
    """Two keys for production: audited runbooks, asked and approved in chat.

    Settings are read from the environment (KEYTURN_…) and from the file .env.
    """


@main.command()
def serve() -> None:
    """Serve chat and web pages, and carry runs out, until interrupted."""
    settings = _settings_to_serve()
    _check_own_runbooks(settings)
    from bot import app

    with plainly():
        app.serve(settings)


@main.command()
@click.option("--site", "sites", multiple=True, required=True, help="As in the inventory.")
@click.option(
    "--concurrency", type=click.IntRange(1, 200), default=8, help="Changes at once; 8 if left out."
)
def worker(*, sites: tuple[str, ...], concurrency: int) -> None:
    """Carry out what is asked for the hosts of a site, until interrupted. Any number may.

    With KEYTURN_ENGINE=distributed; keyturn serve, also any number, is asked and keeps the time.
    --site may be given several times.

    For example: keyturn worker --site ams --site rot
    """
    from bot import worker as bot_worker

    settings = _settings_to_serve()
    _check_own_runbooks(settings)
    with plainly():
        bot_worker.run_worker(settings, sites=sites, concurrency=concurrency)


@main.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """Check the whole installation, and say what to do about each problem. Changes nothing.

    Policy, keys, database, change log, witness, pages, Slack, and each host. Exit status 1 if
    there is an error.
    """
    patient = _patient()
    from bot.cli.doctor import run_doctor
    from bot.slack.health import check_slack
    from bot.web.health import check_pages

    sys.exit(run_doctor(patient, [check_pages, check_slack], as_json=as_json))


@main.command()
@click.option("--http", default="", metavar="ADDRESS", help="For HTTP: Keyturn's own, https://…")
def manifest(*, http: str) -> None:
    """Print the manifest from which Slack makes the app: for Socket Mode, or for HTTP."""
    from bot.slack.manifest import format_manifest

    with plainly():
        click.echo(format_manifest(http), nl=False)


@main.command("runbooks")
@click.argument("words", nargs=-1)
@as_json
def list_runbooks(*, words: tuple[str, ...], as_json: bool) -> None:
    """List what can be asked for, or tell all about the runbooks that begin with WORDS.

    A check only reads, a change can be undone, a one-way one cannot. The areas are those of the
    hosts: keyturn policy explain PERSON WORDS HOST says who may, and who would approve.

    For example: keyturn runbooks zfs scrub
    """
    from bot.model import runbook_info
    from bot.policy import NoPolicy
    from bot.policy.loader import load_policy

    try:
        hosts = tuple(load_policy(_settings().policy).inventory.hosts.values())
    except NoPolicy:  # what there is can be told without: only not where
        hosts = ()
    found = runbook_info.list_runbook_info(" ".join(words), hosts=hosts)
    if not found:
        stop(
            f"no runbook begins with {quote_text(' '.join(words))}: keyturn runbooks lists all",
            NOT_FOUND,
        )
    if as_json:
        click.echo(json.dumps([vars(one) for one in found], indent=2, ensure_ascii=False))
    elif words:
        click.echo("\n\n".join(one.in_full() for one in found))
    else:
        width = max(len(one.words) for one in found)
        for one in found:
            click.echo(f"{one.words:<{width}}  {one.effect:<7}  {one.summary}")


@main.command()
@click.argument("directory", type=click.Path(path_type=Path))
def init(directory: Path) -> None:
    """Write a policy directory to start from, with a comment on every line that matters."""
    from bot.policy import starter

    with plainly():
        for path in starter.write(directory):
            click.echo(f"wrote {path}")
    click.echo(f"Edit them, then: keyturn policy check {directory}")


@main.command("sign-in")
@click.argument("person")
@as_json
def sign_in(*, person: str, as_json: bool) -> None:
    """Print a link that signs PERSON in to the web pages, once, within ten minutes."""
    from bot.audit import change_log as log
    from bot.auth import sessions
    from bot.policy.loader import load_policy

    settings = _settings()
    with _database() as database:
        known = load_policy(settings.policy).person(person)
        if known is None:
            stop(
                f"{person} is not among the people of {settings.policy / 'people.yaml'}", NOT_FOUND
            )
        with database.transaction() as tx:
            token = sessions.create_link(tx, known.id)
            log.append_entry(tx, "link made", person=known.id, door="cli")
    link = f"{settings.address}/sign-in/{token}"
    print_result({"person": known.id, "link": link}, [link], as_json=as_json)


main.add_command(Family.of(inventory))
main.add_command(sudoers)
main.add_command(report)


@main.group(cls=Family)
def changelog() -> None:
    """Read and verify the change log."""


def _settings() -> "Settings":
    from pydantic import ValidationError

    from bot.model import request_form
    from bot.settings import Settings, lend

    try:
        # Before what speaks to others is loaded: it looks for its authorities as it is.
        lend()
        return Settings()
    except ValidationError as error:
        found = error.errors()[0]
        name = "".join(f"KEYTURN_{part}: ".upper() for part in found["loc"])
        stop(name + request_form.describe_invalid_value(found), FAILED)


def _settings_to_serve() -> "Settings":
    """Return the settings, if nobody else reads or writes their file."""
    from bot.settings import SETTINGS_FILE
    from connectors.permissions import find_reader

    settings = _settings()
    with plainly():
        if SETTINGS_FILE.exists() and (trouble := find_reader(SETTINGS_FILE)):
            stop(trouble, FAILED)
    return settings


def _check_own_runbooks(settings: "Settings") -> None:
    """End here, with what is wrong with them: those that came with Keyturn have tests."""
    if settings.runbooks is not None:
        from runbooks import catalogue

        catalogue()


def _patient() -> "Installation":
    given = _settings()
    _check_own_runbooks(given)
    from bot.maintenance.installation import Installation
    from bot.model.redaction import Redactor
    from bot.settings import misspelt

    return Installation(
        data=given.data,
        policy=given.policy,
        keys=given.key_directory,
        database=given.database_url,
        distributed=given.engine == "distributed",
        redactor=Redactor(given.secrets),
        base_url=given.base_url.rstrip("/"),
        witness=given.witness,
        slack_api=given.slack_api,
        slack_bot_token=given.slack_bot_token.get_secret_value(),
        slack_app_token=given.slack_app_token.get_secret_value(),
        slack_signing_secret=given.slack_signing_secret.get_secret_value(),
        slack_team=given.slack_team,
        slack_channel=given.slack_channel,
        slack_alarm_channel=given.slack_alarm_channel,
        misspelt=misspelt(),
        authorities=os.environ.get("SSL_CERT_FILE", ""),
    )


@contextmanager
def _database(instead: str = "", *, missing: bool = False) -> "Generator[Database]":
    """Open the database. instead: another, or for another role. missing: none may be there."""
    from bot.audit import signing
    from bot.db.database import Database
    from bot.model.redaction import Redactor

    settings = _settings()
    with plainly():
        key = settings.key_directory / "changelog.key"
        sealed = signing.load_signing_key(key) if key.exists() else None
        database = Database(instead or settings.database_url, sealed, Redactor(settings.secrets))
        file = Path(database.engine.url.database or "")
        if database.embedded and not (missing or file.exists()):
            stop(
                f"there is no database in {file.parent.absolute()} yet: keyturn serve makes it, "
                "and KEYTURN_DATA says where it is",
                NOT_FOUND,
            )
        try:
            if sealed is not None and not (instead or missing):
                _begin_log(database)
            yield database
        finally:
            database.close()


def _begin_log(database: "Database") -> None:
    """Name the key of the log where nothing did yet: what a command writes comes after it."""
    from bot.audit import change_log as log
    from bot.audit import verification
    from bot.db import migrations

    if not migrations.is_schema_current(database):
        return
    with database.reading() as tx:
        begun = log.get_head(tx) != (0, log.GENESIS)
    if not begun:
        with database.transaction() as tx:
            verification.open_log(tx)


def _has_database() -> bool:
    settings = _settings()
    return bool(settings.database) or (settings.data / "keyturn.db").exists()


_PLACE = Place(
    policy=lambda: _settings().policy,
    database=_database,
    has_database=_has_database,
    data=lambda: _settings().data,
    keys=lambda: _settings().key_directory,
    address=lambda: _settings().base_url.rstrip("/"),
    service=lambda: _settings().here,
    witness=lambda: _settings().witness,
    migrations=lambda: _settings().migrations.get_secret_value(),
    hooks=lambda: _settings().hooks,
)
for other in (show, export, verify, rotate_key, erase, acknowledge):
    other.context_settings["obj"] = _PLACE
    changelog.add_command(other)
db.add_command(copy)
for family in (
    backup,
    restore,
    db,
    policy,
    schedule,
    factors,
    hooks,
    token,
    *MANDATES,
    *COMMANDS,
    *RUNS,
    *LOOKING,
    *HOSTS,
):
    family.context_settings["obj"] = _PLACE
    main.add_command(family)


if __name__ == "__main__":
    main()
