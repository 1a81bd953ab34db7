"""`keyturn changelog erase`: request the erasure of the output of a run."""

import getpass

import click

from bot.cli.context import CommandEnvironment, open_service
from bot.cli.options import acting_person_option, pass_environment, reason_option
from bot.cli.terminal import print_result


@click.command("erase")
@click.argument("run", type=int)
@reason_option("Reason, recorded permanently.", required=True)
@acting_person_option
@pass_environment
def request_erasure(
    environment: CommandEnvironment, *, run: int, reason: str, person: str
) -> None:
    """Request the permanent erasure of the output of RUN. Another person must confirm it.

    An owner of the area confirms it on the web, where they are signed in. The log keeps who, why
    and the hash of the output, so that it still verifies, and its entries about the run.

    For example: keyturn changelog erase 12 --as olga --reason "the output holds a password"
    """
    from bot.features.erasure.actions import ErasureActions

    with open_service(environment, person) as service:
        service.bind(ErasureActions).request_erasure(
            run, person=person, reason=reason, source="cli", login=getpass.getuser()
        )
    page = f"{environment.base_url}/runs/{run}/erase"
    line = f"Requested. Another person, an owner of the area, confirms it at {page}"
    print_result({"run": run, "page": page}, [line])
