"""`keyturn db …`: the database schema, and the rights of PostgreSQL roles."""

import sys
from typing import TYPE_CHECKING

import click

from bot.cli.context import FAILED, CommandEnvironment, exit_on_errors, pass_environment
from bot.cli.options import json_option
from bot.cli.sections import CommandGroup
from bot.cli.terminal import print_result

if TYPE_CHECKING:
    from bot.db.database import Database


@click.group(cls=CommandGroup)
def db() -> None:
    """Manage the database."""


@db.command("upgrade")
@click.option("--grant", default="", help="PostgreSQL role that gets the rights of the service.")
@json_option
@pass_environment
def upgrade_database(environment: CommandEnvironment, *, grant: str) -> None:
    """Upgrade the database to the schema of this version.

    For a new database, it also creates changelog.key and secrets.key; all processes on one
    database need both. --grant gives a role the rights that `keyturn db grants` prints.

    For example: keyturn db upgrade --grant keyturn_app
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
    print_result({"current": True}, ["The schema is up to date."])


@db.command("grants")
@click.argument("app")
@click.option("--reader", default="", help="A role that may only read.")
def print_grants(*, app: str, reader: str) -> None:
    """Print SQL that lets the PostgreSQL role APP append to the change log and not alter it.

    Run it as the owner of the tables, after each upgrade: keyturn db grants keyturn_app | psql …
    """
    from bot.db import roles

    with exit_on_errors():
        for statement in roles.grant_statements(app, reader):
            click.echo(f"{statement};")


@db.command("check")
@json_option
@pass_environment
def check_database(environment: CommandEnvironment) -> None:
    """Check schema, rights, engine and keys of the database.

    Exit status 1 if the service cannot use it. Excess rights of the role are only printed.
    """
    from bot.db import migrations, roles

    with exit_on_errors(), environment.open_database() as database:
        current = migrations.is_schema_current(database)
        excess_rights = roles.find_excess_rights(database) if current else []
        is_distributed = current and not database.embedded
        key_problem = _describe_key_problem(environment, database) if current else ""
    data = {
        "current": current,
        "excess_rights": excess_rights,
        "distributed": is_distributed,
        "keys": key_problem,
    }
    lines = [
        "The schema is up to date." if current else "Outdated schema. Run: keyturn db upgrade"
    ]
    if excess_rights:
        lines.append(f"The role has more rights than it needs: it {', '.join(excess_rights)}")
    print_result(data, lines + [key_problem] * bool(key_problem))
    sys.exit(0 if current and not key_problem else FAILED)


def _has_log_entries(database: "Database") -> bool:
    """Return whether the change log has entries, and so a signing key."""
    from bot.audit import change_log

    with database.reading() as tx:
        return change_log.get_head(tx) != (0, change_log.GENESIS)


def _describe_key_problem(environment: CommandEnvironment, database: "Database") -> str:
    """Describe what is wrong with the keys for this database; "" if nothing."""
    from bot.audit import verification
    from bot.auth import secret_box
    from bot.model import signing
    from bot.model.keyfile import KeyFileError

    if not _has_log_entries(database):
        return ""
    files = [environment.get_key_directory() / name for name in ("changelog.key", "secrets.key")]
    for file in files:
        if not file.exists():
            return f"{file} is missing: restore the one that belongs to this database"
    try:
        with database.reading() as tx:
            verification.check_signing_key(tx, signing.load_signing_key(files[0]))
            secret_box.read_sealed_trial(tx, secret_box.load_secret_box(files[1]))
    except KeyFileError as error:
        return str(error)
    return ""
