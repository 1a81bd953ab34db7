"""`keyturn changelog rotate-key`, `erase` and `acknowledge`."""

import getpass
from pathlib import Path

import click

from bot.cli.client import print_result
from bot.cli.context import CommandEnvironment, exit_on_errors, pass_environment
from bot.cli.offline import open_service
from bot.cli.options import acting_person_option, json_option, reason_option
from bot.cli.progress import show_progress


@click.command("rotate-key")
@json_option
@pass_environment
def rotate_key(environment: CommandEnvironment, *, as_json: bool) -> None:
    """Replace the signing key of the change log. The log records it, signed by both keys.

    Verifies the whole log first; a broken log keeps its key. Stop the service first. The old key
    is deleted, so that it cannot be stolen. People must sign in again; tokens stay valid.
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
        witness_file = environment.get_witness_file()
        points = (
            checkpoints.read_checkpoints(witness_file)
            if witness_file is not None and witness_file.exists()
            else []
        )
        result = key_rotation.rotate_signing_key(
            database,
            environment.get_key_directory() / "changelog.key",
            witnesses=points,
            stages=show_progress(quiet=as_json),
        )
    for token in result.ended:
        click.echo(
            f"Ended token {token.id} ({token.prefix}…) of {token.person}: the change log does not "
            "record its creation.",
            err=True,
        )
    line = (
        f"New signing key {result.public}. Back up changelog.key, apart from the database. "
        "People must sign in again; tokens stay valid."
    )
    data = {"public": result.public, "ended_tokens": [token.id for token in result.ended]}
    print_result(data, [line], as_json=as_json)


@click.command("erase")
@click.argument("run", type=int)
@reason_option("Reason, recorded permanently.", required=True)
@acting_person_option
@json_option
@pass_environment
def request_erasure(
    environment: CommandEnvironment, *, run: int, reason: str, person: str, as_json: bool
) -> None:
    """Request the permanent erasure of the output of RUN. Another person must confirm it.

    An owner of the area confirms it on the web, where they are signed in. The log keeps who, why
    and the hash of the output, so that it still verifies, and its entries about the run.

    For example: keyturn changelog erase 12 --as olga --reason "the output holds a password"
    """
    with open_service(environment) as service:
        service.erasure.request_erasure(
            run, person=person, reason=reason, source="cli", login=getpass.getuser()
        )
    page = f"{environment.get_base_url()}/runs/{run}/erase"
    line = f"Requested. Another person, an owner of the area, confirms it at {page}"
    print_result({"run": run, "page": page}, [line], as_json=as_json)


@click.command("acknowledge")
@click.argument("first", type=int)
@click.option("--lost", type=click.IntRange(1), required=True, help="Number of lost entries.")
@reason_option("What was lost and why, recorded permanently.", required=True)
@acting_person_option
@click.option(
    "--witness",
    "witnesses",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="File of a witness that has them; repeatable. Default: KEYTURN_WITNESS.",
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
    """Acknowledge that entries from FIRST on were lost, for example after a restore.

    Until then `keyturn changelog verify` exits with status 1. Stop the service first. The numbers
    must be those of the entries that witnesses have and the log lacks. The log records who
    acknowledged the loss and why.

    For example: keyturn changelog acknowledge 4711 --lost 12 --as olga --reason "restored Monday's
    backup"
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
        witness_file = environment.get_witness_file()
        has_file = witness_file is not None and witness_file.exists()
        files = witnesses or ((witness_file,) if witness_file and has_file else ())
        if not files:
            raise ValueError(
                "no witness file: add --witness FILE with a witness that has the entries"
            )
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
    line = f"Acknowledged the loss of {lost} entries from {first} on."
    print_result({"first": first, "lost": lost}, [line], as_json=as_json)
