"""`keyturn changelog verify`: is the log whole, and is it the one that witnesses saw?"""

import getpass
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.cli.client import json_option
from bot.cli.context import FAILED, CommandEnvironment, exit_on_errors, pass_environment
from bot.cli.progress import show_progress

if TYPE_CHECKING:
    from bot.db.database import Database


@click.command("verify")
@click.option(
    "--witness",
    "witnesses",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A witness's file to hold the log against; may be given several times. Left out, that of "
    "KEYTURN_WITNESS, if it is there.",
)
@click.option("--key", default="", help="The public key that must have sealed it, 64 hex digits.")
@click.option(
    "--quick",
    is_flag=True,
    help="Check every hash, and of the signatures only the last and those of changed keys.",
)
@json_option
@pass_environment
def verify_log(
    environment: CommandEnvironment,
    *,
    witnesses: tuple[Path, ...],
    key: str,
    quick: bool,
    as_json: bool,
) -> None:
    """Recompute the whole chain and check every signature.

    Exit status 1 if an entry was altered, forged or is missing. The log records that it was
    verified; nothing is added to a log that is broken.
    """
    from bot.audit import checkpoints, verification

    with exit_on_errors(), environment.open_database() as database:
        ours = environment.get_witness_file()
        files = witnesses or ((ours,) if ours is not None and ours.exists() else ())
        points = [point for file in files for point in checkpoints.read_checkpoints(file)]
        with database.reading() as tx:
            verdict = verification.verify_log(
                tx,
                required_key=key,
                witnesses=points,
                quick=quick,
                stages=show_progress(quiet=as_json),
            )
        if verdict.broken is None:
            _record_verification(database, key)
    if as_json:
        click.echo(json.dumps(vars(verdict)))
    elif verdict.broken is None:
        click.echo(f"{verdict.entries} entries, unbroken; head {verdict.head}")
        agree = len(points) - verdict.lost
        click.echo(f"sealed by {verdict.key}; {agree} checkpoints of witnesses agree")
        if verdict.lost:
            said = "are of entries that were lost, as a person has acknowledged in the log"
            click.echo(f"{verdict.lost} checkpoints of witnesses {said}")
    else:
        click.echo(f"BROKEN at entry {verdict.broken}: {verdict.why}", err=True)
    sys.exit(FAILED if verdict.broken is not None else 0)


def _record_verification(database: "Database", public_key: str) -> None:
    """Log that somebody verified it; who may only read cannot, and is told."""
    from bot.audit import change_log
    from bot.db.database import StoreUnavailable

    try:
        with database.transaction() as tx:
            change_log.append_entry(tx, "log verified", login=getpass.getuser(), key=public_key)
    except StoreUnavailable as trouble:
        click.echo(f"keyturn: this is not in the change log: {trouble}", err=True)
