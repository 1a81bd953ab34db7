"""`keyturn db …`, `backup` and `restore`: the schema, rights and content of the database."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from bot.cli.context import (
    FAILED,
    NOT_UNDERSTOOD,
    CommandEnvironment,
    exit_on_errors,
    exit_with_error,
)
from bot.cli.options import pass_environment, witness_option
from bot.cli.progress import show_progress
from bot.cli.sections import CommandGroup
from bot.cli.terminal import print_result

if TYPE_CHECKING:
    from bot.db.database import Database
    from bot.maintenance.restore import RestoreResult


_UPGRADES = {
    "created": "The database was empty. Created the schema.",
    "upgraded": "Upgraded the schema.",
    "current": "The schema is up to date.",
}


@click.group(cls=CommandGroup)
def db() -> None:
    """Manage the database."""


@db.command("upgrade")
@click.option("--grant", default="", help="PostgreSQL role that gets the rights of the service.")
@click.option("--backed-up", is_flag=True, help="You made a backup of PostgreSQL with pg_dump.")
@pass_environment
def upgrade_database(environment: CommandEnvironment, *, grant: str, backed_up: bool) -> None:
    """Upgrade the database to the schema of this version; stop the service first.

    A SQLite database is checked, and copied beside itself, before anything is changed; of
    PostgreSQL, make a backup yourself. An upgrade is done as a whole or not at all.

    For a new database, it also creates changelog.key and secrets.key; all processes on one
    database need both. --grant gives a role the rights that `keyturn db grants` prints.

    For example: keyturn db upgrade --grant keyturn_app
    """
    from bot.auth import secret_box
    from bot.db import data_directory, migrations, roles
    from bot.db.database import lock_data_directory
    from bot.maintenance import upgrade
    from bot.model import signing

    url = environment.settings.migrations.get_secret_value()
    with environment.open_database(url) as database, ExitStack() as held:
        if database.embedded and not migrations.is_schema_current(database):
            held.enter_context(lock_data_directory(environment.settings.data))
        result = upgrade.upgrade_database(
            database, environment.settings.data, is_backed_up=backed_up
        )
        if grant:
            roles.grant_roles(database, grant)
        if not _has_log_entries(database):
            data_directory.make_data_directory(environment.settings.key_directory)
            signing.load_signing_key(environment.settings.key_directory / "changelog.key")
            secret_box.load_secret_box(environment.settings.key_directory / "secrets.key")
    lines = [_UPGRADES[result.done]]
    lines += [f"{revision}: {note}" for revision, note in result.notes.items()]
    if result.backup is not None:
        lines.append(f"The database as it was: {result.backup}")
    data = {"current": True, "done": result.done, "notes": dict(result.notes)}
    data |= {"backup": str(result.backup) if result.backup else None}
    print_result(data, lines)


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
@pass_environment
def check_database(environment: CommandEnvironment) -> None:
    """Check schema, rights, engine and keys of the database.

    Exit status 1 if the service cannot use it. Excess rights of the role are only printed.
    """
    from bot.db import migrations, roles

    with environment.open_database() as database:
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
        return change_log.get_head(tx)[0] > 0


def _describe_key_problem(environment: CommandEnvironment, database: "Database") -> str:
    """Describe what is wrong with the keys for this database; "" if nothing."""
    from bot.audit import verification
    from bot.auth import secret_box
    from bot.model import signing
    from bot.model.keyfile import KeyFileError

    if not _has_log_entries(database):
        return ""
    files = [
        environment.settings.key_directory / name for name in ("changelog.key", "secrets.key")
    ]
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


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, writable=True))
@pass_environment
def back_up_database(environment: CommandEnvironment, *, file: Path) -> None:
    """Save the whole database in FILE, while the service runs.

    `keyturn restore` restores the file into SQLite or PostgreSQL. It contains no keys: back up
    changelog.key and secrets.key separately, once. The policy directory is in version control.
    Exit status 1 if the saved change log is broken.

    For example: keyturn backup /backup/keyturn-monday.db
    """
    from bot.maintenance import backup

    with environment.open_database() as database:
        label, verdict = backup.make_backup(database, file, show_progress())
    is_broken = verdict.broken is not None
    data = {"file": str(file), "rows": label.rows, "entries": label.point.size}
    data |= {"head": label.point.root, "broken": verdict.broken, "error": verdict.why}
    line = f"Saved {label.rows} rows in {file}; head of the log {label.point.root}"
    print_result(data, [line])
    if is_broken:
        click.echo(f"BROKEN at entry {verdict.broken}: {verdict.why}", err=True)
    sys.exit(FAILED if is_broken else 0)


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@witness_option("File of a witness, or log of a host, to find lost entries; repeatable.")
@pass_environment
def restore_database(
    environment: CommandEnvironment, *, file: Path, witnesses: tuple[Path, ...]
) -> None:
    """Restore the backup FILE where there is no database, or an empty one.

    Stop the service, and put changelog.key and secrets.key in place first. Everything after the
    backup is lost. Runs that were open then end, so that none is executed twice; people must sign
    in again; and nothing is sent to a host until `keyturn resume`.

    For example: keyturn restore /backup/keyturn-monday.db
    """
    from bot.db.database import lock_data_directory
    from bot.db.process_lock import lock_exclusive
    from bot.integrations import witness_file
    from bot.maintenance.backup import InvalidBackupError
    from bot.maintenance.restore import restore_backup

    data = environment.settings.data
    with (
        exit_on_errors(),
        lock_data_directory(data),
        environment.open_database(allow_missing=True) as target,
        lock_exclusive(target),
    ):
        for name in ("changelog.key", "secrets.key"):
            key = environment.settings.key_directory / name
            if not key.exists():
                exit_with_error(
                    f"{key} is missing: restore it first, from the backup of the keys", FAILED
                )
        seen = [one for each in witnesses for one in witness_file.read_checkpoints(each)]
        try:
            stages = show_progress()
            result = restore_backup(file, target, working=data, seen=seen, stages=stages)
        except InvalidBackupError as error:
            exit_with_error(f"{file} {error}", NOT_UNDERSTOOD)
    print_result(_result_to_data(result), _describe_result(result, has_witnesses=bool(witnesses)))


@db.command("copy")
@click.option(
    "--from", "source", default="", help="Address of the source. Default: the database in use."
)
@click.option(
    "--to", "target", required=True, help="sqlite:///FILE or postgresql://USER@HOST/NAME"
)
@pass_environment
def copy_to_database(environment: CommandEnvironment, *, source: str, target: str) -> None:
    """Copy a database into an empty one, between SQLite and PostgreSQL in either direction.

    Stop the service first. The copy is verified, and the change log records it. Then set
    KEYTURN_DATABASE to the new address. Give passwords by PGPASSWORD, .pgpass or a service file:
    everyone on the machine can read command lines.

    For example: keyturn db copy --to postgresql://keyturn@db1/keyturn
    """
    from bot.db.database import lock_data_directory
    from bot.db.process_lock import lock_exclusive
    from bot.maintenance import copy_database

    with (
        exit_on_errors(),
        lock_data_directory(environment.settings.data),
        environment.open_database(_parse_database_url(source)) as old,
        environment.open_database(_parse_database_url(target), allow_missing=True) as new,
        lock_exclusive(old),
        lock_exclusive(new),
    ):
        result = copy_database.copy_database(old, new, show_progress())
    lines = [
        f"Copied {result.rows} rows; {result.entries} entries, log intact; head {result.head}",
        "Set KEYTURN_DATABASE to the new address, and start the service.",
    ]
    print_result(vars(result), lines)


def _parse_database_url(typed: str) -> str:
    """Return an address in the form of SQLAlchemy; exit if it is not valid."""
    if not typed:
        return ""
    parts = urlsplit(typed)
    if parts.password:
        exit_with_error(
            "everyone on this machine can read a password on the command line: remove it and "
            "set PGPASSWORD, or use ~/.pgpass",
            NOT_UNDERSTOOD,
        )
    if typed.startswith("sqlite:///"):
        return f"sqlite:///{Path(typed.removeprefix('sqlite:///')).absolute()}"
    if not typed.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
        exit_with_error(
            f"invalid address {typed}: use sqlite:///FILE or postgresql://USER@HOST/NAME",
            NOT_UNDERSTOOD,
        )
    return f"postgresql+psycopg://{typed.partition('://')[2]}"


def _result_to_data(result: "RestoreResult") -> dict[str, object]:
    return {
        "made": result.label.made,
        "entries": result.label.point.size,
        "head": result.label.point.root,
        "ended": list(result.ended),
        "seen_until": max((one.size for one in result.later), default=None),
        "runs_seen": sorted({one.run for one in result.later if one.run}),
        "next_run": result.first,
    }


def _describe_result(result: "RestoreResult", *, has_witnesses: bool) -> list[str]:
    from bot.model.times import format_timestamp

    point = result.label.point
    lines = [
        f"Restored to {format_timestamp(result.label.made)}: {point.size} entries, log intact."
    ]
    last = max(result.later, key=lambda one: one.size, default=None)
    if last is not None:
        lines.append(
            f"Lost: at least entries {point.size + 1} to {last.size}, which witnesses have of "
            f"{format_timestamp(last.at)}."
        )
        if named := sorted({one.run for one in result.later if one.run}):
            lines.append(f"Lost runs that changed hosts: {_join_numbers(named)}.")
    elif has_witnesses:
        lines.append("The witnesses have no later entries.")
    else:
        lines.append("Later entries are lost. Add --witness to see which.")
    if result.ended:
        lines.append(
            f"Ended, because they may have been executed after the backup: runs "
            f"{_join_numbers(result.ended)}."
        )
    lines += [
        f"The next run has number {result.first}, because lower ones may have been used.",
        "People must sign in again. Tokens, bans, grants and factors are those of the backup.",
        "Everything is stopped. Check, then: keyturn resume --as PERSON --reason REASON",
    ]
    return lines


def _join_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
