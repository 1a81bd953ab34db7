"""`keyturn changelog verify`: check the hash chain, the signatures and the checkpoints."""

import getpass
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.cli.context import FAILED, CommandEnvironment, exit_on_errors, pass_environment
from bot.cli.options import json_option
from bot.cli.progress import show_progress

if TYPE_CHECKING:
    from bot.db.database import Database


@click.command("verify")
@click.option(
    "--witness",
    "witnesses",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="File of a witness to compare with; repeatable. Default: KEYTURN_WITNESS.",
)
@click.option("--key", default="", help="The required public signing key, 64 hex digits.")
@click.option(
    "--quick",
    is_flag=True,
    help="Check every hash, but only the last signature and those of key changes.",
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
    """Recompute the whole hash chain and check every signature.

    Exit status 1 if an entry was changed, forged or is missing. The log records the verification,
    unless the log is broken.
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
        click.echo(f"{verdict.entries} entries, chain intact; head {verdict.head}")
        agree = len(points) - verdict.lost
        click.echo(f"signed by {verdict.key}; {agree} witness checkpoints match")
        if verdict.lost:
            click.echo(f"{verdict.lost} witness checkpoints are of entries acknowledged as lost")
    else:
        click.echo(f"BROKEN at entry {verdict.broken}: {verdict.why}", err=True)
    sys.exit(FAILED if verdict.broken is not None else 0)


def _record_verification(database: "Database", public_key: str) -> None:
    """Record the verification in the change log; warn if the database is read-only."""
    from bot.audit import change_log
    from bot.db.database import StoreUnavailable

    try:
        with database.transaction() as tx:
            change_log.append_entry(tx, "log verified", login=getpass.getuser(), key=public_key)
    except StoreUnavailable as error:
        click.echo(f"keyturn: cannot record this in the change log: {error}", err=True)
