"""`keyturn changelog …` for what is rare: a change of its key, and erasing what hosts answered."""

import getpass
from pathlib import Path

import click

from bot.cli import offline
from bot.cli.client import json_option, print_result
from bot.cli.context import CommandEnvironment, exit_on_errors, exit_on_refusals, pass_environment
from bot.cli.progress import show_progress


@click.command("rotate-key")
@json_option
@pass_environment
def rotate_key(environment: CommandEnvironment, *, as_json: bool) -> None:
    """Seal the log by a new key from now on; the log itself says so, signed by both.

    The whole log is verified first: a log that is broken keeps its key. The service must be
    stopped meanwhile. The old key is gone then: nobody can steal it any more.
    People sign in anew; tokens go on.
    """
    from bot.audit import checkpoints
    from bot.db.database import lock_data_directory
    from bot.db.process_lock import lock_exclusive
    from bot.maintenance import key_rotation

    with (
        exit_on_errors(),
        environment.open_database() as database,
        lock_data_directory(environment.get_data_directory()),
        lock_exclusive(database),
    ):
        ours = environment.get_witness_file()
        points = checkpoints.read_checkpoints(ours) if ours is not None and ours.exists() else []
        done = key_rotation.rotate_signing_key(
            database,
            environment.get_key_directory() / "changelog.key",
            witnesses=points,
            stages=show_progress(quiet=as_json),
        )
    for token in done.ended:
        click.echo(
            f"token {token.id} ({token.prefix}…) of {token.person} opens nothing any more: the "
            "change log does not tell that it was made",
            err=True,
        )
    said = (
        f"sealed by {done.public} from now on: back changelog.key up, apart from the database. "
        "Everybody signs in anew; tokens go on"
    )
    told = {"public": done.public, "ended_tokens": [token.id for token in done.ended]}
    print_result(told, [said], as_json=as_json)


@click.command("erase")
@click.argument("run", type=int)
@click.option("--why", required=True, help="The reason, which stays in the log for good.")
@click.option("--as", "person", required=True, help="Who you are, as in people.yaml.")
@json_option
@pass_environment
def request_erasure(
    environment: CommandEnvironment, *, run: int, why: str, person: str, as_json: bool
) -> None:
    """Ask to erase what the hosts answered in RUN, for good. It takes two people.

    An owner of the area confirms it, signed in on the web: here, anybody could say who they are.
    The log keeps who, why and the hash of what was there, so that it still verifies; what it says
    of the run itself stays.
    """
    from bot.workflow import erasure

    with exit_on_errors(), environment.open_database() as database, exit_on_refusals():
        parts, login = offline.build_workflow_context(environment, database), getpass.getuser()
        erasure.request_erasure(parts, run, person=person, why=why, source="cli", login=login)
    where = f"{environment.get_base_url()}/runs/{run}/erase"
    said = f"asked for: another person, an owner of the area, confirms it on the web, {where}"
    print_result({"run": run, "page": where}, [said], as_json=as_json)


@click.command("acknowledge")
@click.argument("first", type=int)
@click.option("--lost", type=click.IntRange(1), required=True, help="How many entries were lost.")
@click.option("--reason", required=True, help="What was lost and why, which stays in the log.")
@click.option("--as", "person", required=True, help="Who you are, as in people.yaml.")
@click.option(
    "--witness",
    "witnesses",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A witness's file that saw them; may be given several times. Left out, that of "
    "KEYTURN_WITNESS.",
)
@json_option
@pass_environment
def acknowledge_loss(
    environment: CommandEnvironment,
    *,
    first: int,
    lost: int,
    reason: str,
    person: str,
    witnesses: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Acknowledge that entries from FIRST on were lost, as after a restore.

    Until then `keyturn changelog verify` ends with exit status 1. Stop the service first. The
    numbers have to be those that the witnesses saw and that the log lacks. The log records who
    acknowledged the loss and why.
    """
    from bot.audit import checkpoints, verification
    from bot.db.database import lock_data_directory
    from bot.db.process_lock import lock_exclusive

    with (
        exit_on_errors(),
        environment.open_database() as database,
        lock_data_directory(environment.get_data_directory()),
        lock_exclusive(database),
    ):
        ours = environment.get_witness_file()
        files = witnesses or ((ours,) if ours is not None and ours.exists() else ())
        if not files:
            raise ValueError("name a file of a witness that saw the entries: --witness FILE")
        points = [point for file in files for point in checkpoints.read_checkpoints(file)]
        with database.transaction(seconds=3600) as tx:
            verification.acknowledge_loss(
                tx,
                points,
                first=first,
                lost_entries=lost,
                person=person,
                reason=reason,
                login=getpass.getuser(),
            )
    said = f"acknowledged: {lost} entries from {first} on were lost"
    print_result({"first": first, "lost": lost}, [said], as_json=as_json)
