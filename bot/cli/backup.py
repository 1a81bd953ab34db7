"""`keyturn backup`, `keyturn restore` and `keyturn db copy`: all that is kept, saved and moved."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from bot.cli.client import json_option
from bot.cli.context import (
    FAILED,
    CommandEnvironment,
    exit_on_errors,
    exit_with_error,
    pass_environment,
)
from bot.cli.progress import show_progress

if TYPE_CHECKING:
    from bot.maintenance.restore import RestoreResult


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
@pass_environment
def back_up_database(environment: CommandEnvironment, *, file: Path, as_json: bool) -> None:
    """Save all that the database holds in FILE, while the service goes on.

    One file for either database: `keyturn restore` puts it back into either. It holds no keys:
    back changelog.key and secrets.key up apart from it, once. The policy directory is in version
    control. Exit status 1 if the change log that was saved is broken.
    """
    from bot.maintenance import backup as saving
    from bot.maintenance.copy_database import CopyError

    with exit_on_errors(), environment.open_database() as database:
        try:
            label, verdict = saving.make_backup(database, file, show_progress(quiet=as_json))
        except CopyError as no:
            exit_with_error(str(no), FAILED)
    broken = verdict.broken is not None
    if as_json:
        told_of = {"file": str(file), "rows": label.rows, "entries": label.point.seq}
        more = {"head": label.point.hash, "broken": verdict.broken, "why": verdict.why}
        click.echo(json.dumps(told_of | more))
    else:
        click.echo(f"saved {label.rows} rows in {file}; the log's head is {label.point.hash}")
    if broken:
        click.echo(f"BROKEN at entry {verdict.broken}: {verdict.why}", err=True)
    sys.exit(FAILED if broken else 0)


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--witness",
    "witnesses",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A witness's file, or a host's log, to see what came after; may be given several times.",
)
@json_option
@pass_environment
def restore_database(
    environment: CommandEnvironment, *, file: Path, witnesses: tuple[Path, ...], as_json: bool
) -> None:
    """Put the backup FILE back, where there is no database, or an empty one.

    The service must be stopped, and changelog.key and secrets.key in their place. What came after
    the backup is not in it: what was not done by then ends instead of being done twice, everybody
    signs in anew, and nothing goes to a host until somebody has looked and said `keyturn resume`.
    """
    from bot.audit import checkpoints
    from bot.db.database import lock_data_directory
    from bot.db.process_lock import lock_exclusive
    from bot.maintenance.backup import InvalidBackupError
    from bot.maintenance.copy_database import CopyError
    from bot.maintenance.restore import restore_backup as put_back

    data = environment.get_data_directory()
    with (
        exit_on_errors(),
        lock_data_directory(data),
        environment.open_database(allow_missing=True) as target,
        lock_exclusive(target),
    ):
        for name in ("changelog.key", "secrets.key"):
            key = environment.get_key_directory() / name
            if not key.exists():
                exit_with_error(
                    f"{key} is missing: put it back first, from the keys' backup", FAILED
                )
        seen = [one for each in witnesses for one in checkpoints.read_witnessed_checkpoints(each)]
        try:
            stages = show_progress(quiet=as_json)
            done = put_back(file, target, working=data, seen=seen, stages=stages)
        except InvalidBackupError as no:
            exit_with_error(f"{file} {no}", FAILED)
        except CopyError as no:
            exit_with_error(str(no), FAILED)
    if as_json:
        click.echo(json.dumps(_result_to_data(done)))
    else:
        click.echo(_format_result(done, bool(witnesses)))


@click.command("copy")
@click.option("--from", "source", default="", help="The address; without it, the one in use.")
@click.option(
    "--to", "target", required=True, help="sqlite:///FILE or postgresql://USER@HOST/NAME"
)
@json_option
@pass_environment
def copy_to_database(
    environment: CommandEnvironment, *, source: str, target: str, as_json: bool
) -> None:
    """Copy all that a database holds into another, empty one: from SQLite to PostgreSQL, or back.

    The service must be stopped. The copy is verified; the log tells of the move. Afterwards set
    KEYTURN_DATABASE to the new address. Passwords do not belong on a command line, where everybody
    can read them: PGPASSWORD, a file .pgpass or a service file holds them.
    """
    from bot.db.database import lock_data_directory
    from bot.db.process_lock import lock_exclusive
    from bot.maintenance import copy_database
    from bot.maintenance.copy_database import CopyError

    with (
        exit_on_errors(),
        lock_data_directory(environment.get_data_directory()),
        environment.open_database(_parse_database_url(source)) as old,
        environment.open_database(_parse_database_url(target), allow_missing=True) as new,
        lock_exclusive(old),
        lock_exclusive(new),
    ):
        try:
            moved = copy_database.copy_database(old, new, show_progress(quiet=as_json))
        except CopyError as no:
            exit_with_error(str(no), FAILED)
    if as_json:
        click.echo(json.dumps(vars(moved)))
    else:
        click.echo(
            f"copied {moved.rows} rows; {moved.entries} entries, unbroken; head {moved.head}"
        )
        click.echo("set KEYTURN_DATABASE to the new address, and start")


def _parse_database_url(typed: str) -> str:
    """Return an address as SQLAlchemy writes it. Raises ValueError for one that cannot be."""
    if not typed:
        return ""
    parts = urlsplit(typed)
    if parts.password:
        raise ValueError(
            "a password on the command line can be read by everybody on this machine: leave it "
            "out, and set PGPASSWORD, or keep it in ~/.pgpass"
        )
    if typed.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
        return f"postgresql+psycopg://{typed.partition('://')[2]}"
    if typed.startswith("sqlite:///"):
        return f"sqlite:///{Path(typed.removeprefix('sqlite:///')).absolute()}"
    raise ValueError(f"{typed} is no address: sqlite:///FILE or postgresql://USER@HOST/NAME")


def _result_to_data(result: "RestoreResult") -> dict[str, object]:
    return {
        "made": result.label.made,
        "entries": result.label.point.seq,
        "head": result.label.point.hash,
        "ended": list(result.ended),
        "seen_until": max((one.checkpoint.seq for one in result.later), default=None),
        "runs_seen": sorted({one.run for one in result.later if one.run}),
        "next_run": result.first,
    }


def _format_result(result: "RestoreResult", has_witnesses: bool) -> str:  # noqa: FBT001 - whether there were any
    from bot.model.times import format_moment

    point = result.label.point
    lines = [
        f"put back as it was at {format_moment(result.label.made)}: {point.seq} entries, unbroken"
    ]
    last = max((one.checkpoint for one in result.later), key=lambda one: one.seq, default=None)
    if last is not None:
        lines.append(
            f"lost: entries {point.seq + 1} to {last.seq} at least, as witnesses saw at "
            f"{format_moment(last.at)}"
        )
        if named := sorted({one.run for one in result.later if one.run}):
            lines.append(f"hosts were changed by runs that are not here: {_join_numbers(named)}")
    elif has_witnesses:
        lines.append("the witnesses saw nothing that came later")
    else:
        lines.append("what came later is lost; give --witness to see how much that was")
    if result.ended:
        lines.append(
            f"ended, since they may have been done meanwhile: runs {_join_numbers(result.ended)}"
        )
    lines += [
        f"the next run has number {result.first}: those between were, or may have been, others",
        "everybody signs in anew; tokens, bans, grants and second factors are as they were then",
        "nothing goes to a host yet: look at it, then keyturn resume --as PERSON --why REASON",
    ]
    return "\n".join(lines)


def _join_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
