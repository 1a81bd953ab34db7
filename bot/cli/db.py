"""`keyturn db …`: its schema, and what roles of PostgreSQL may do with it."""

import json
import sys
from typing import TYPE_CHECKING

import click

from bot.cli.client import json_option, print_result
from bot.cli.context import FAILED, CommandEnvironment, exit_on_errors, pass_environment
from bot.cli.sections import CommandGroup

if TYPE_CHECKING:
    from bot.db.database import Database


@click.group(cls=CommandGroup)
def db() -> None:
    """Look after the database."""


@db.command("upgrade")
@click.option("--grant", default="", help="PostgreSQL's role that may work with it afterwards.")
@json_option
@pass_environment
def upgrade_database(environment: CommandEnvironment, *, grant: str, as_json: bool) -> None:
    """Bring the database to the schema that this version works with.

    Of a new one it also makes the keys, changelog.key and secrets.key: where several processes
    work on one database, each needs both. --grant gives a role what `keyturn db grants` prints.
    """
    from bot.auth import secret_box
    from bot.db import data_directory, migrations, roles
    from bot.model import signing

    with exit_on_errors(), environment.open_database(environment.get_migration_url()) as database:
        migrations.upgrade_schema(database)
        if grant:
            roles.grant_roles(database, grant)
        if not _has_log_entries(database):
            data_directory.make_data_directory(environment.get_key_directory())
            signing.load_signing_key(environment.get_key_directory() / "changelog.key")
            secret_box.load_secret_box(environment.get_key_directory() / "secrets.key")
    print_result({"current": True}, ["up to date"], as_json=as_json)


@db.command("grants")
@click.argument("app")
@click.option("--reader", default="", help="A role that may only read what was done.")
def print_grants(*, app: str, reader: str) -> None:
    """Print SQL that lets the role APP work with the log and never change it. For PostgreSQL.

    For the owner of the tables, after each upgrade: keyturn db grants keyturn_app | psql …
    """
    from bot.db import roles

    with exit_on_errors():
        for statement in roles.grant_statements(app, reader):
            click.echo(f"{statement};")


@db.command("check")
@json_option
@pass_environment
def check_database(environment: CommandEnvironment, *, as_json: bool) -> None:
    """Say whether the database is as this version needs it: schema, rights, engine and keys.

    Exit status 1 if it cannot be worked with so. A role that is too strong is told, no more.
    """
    from bot.db import migrations, roles

    with exit_on_errors(), environment.open_database() as database:
        current = migrations.is_schema_current(database)
        strong = roles.find_excess_rights(database) if current else []
        engine = current and not database.embedded
        keys = _describe_key_problem(environment, database) if current else ""
    found = {"current": current, "too_strong": strong, "distributed": engine, "keys": keys}
    if as_json:
        click.echo(json.dumps(found))
    else:
        click.echo("up to date" if current else "behind: run keyturn db upgrade")
        if strong:
            click.echo(f"our role is stronger than it needs to be: it {', '.join(strong)}")
        if keys:
            click.echo(keys)
    sys.exit(0 if current and not keys else FAILED)


def _has_log_entries(database: "Database") -> bool:
    """Say whether there is a change log, which has its key somewhere."""
    from bot.audit import change_log

    with database.reading() as tx:
        return change_log.get_head(tx) != (0, change_log.GENESIS)


def _describe_key_problem(environment: CommandEnvironment, database: "Database") -> str:
    """Say what is wrong with our keys for this database; "" if nothing is."""
    from bot.audit import verification
    from bot.auth import secret_box
    from bot.model import signing
    from bot.model.keyfile import KeyFileError

    if not _has_log_entries(database):
        return ""
    files = [environment.get_key_directory() / name for name in ("changelog.key", "secrets.key")]
    for file in files:
        if not file.exists():
            return f"{file} is missing: put back the one that belongs to this database"
    try:
        with database.reading() as tx:
            verification.check_signing_key(tx, signing.load_signing_key(files[0]))
            secret_box.read_sealed_trial(tx, secret_box.load_secret_box(files[1]))
    except KeyFileError as trouble:
        return str(trouble)
    return ""
