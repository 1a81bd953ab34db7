"""`keyturn changelog …` for what is rare: a change of its key, and erasing what hosts answered."""

import getpass
from typing import TYPE_CHECKING

import click

from bot.cli.place import FAILED, Place, at_place, plainly, stop

if TYPE_CHECKING:
    from bot.store.database import Database
    from bot.workflow.parts import Parts


@click.command("rotate-key")
@at_place
def rotate_key(place: Place) -> None:
    """Seal the log by a new key from now on; the log itself says so, signed by both.

    The service must be stopped meanwhile. The old key is gone then: nobody can steal it any more.
    """
    from bot.custody import rotation
    from bot.store.database import sole_server, sole_user

    with place.database() as database, sole_user(place.data()), sole_server(database):
        public = rotation.rotate(database, place.data() / "changelog.key")
    click.echo(f"sealed by {public} from now on: back changelog.key up, apart from the database")


@click.command("erase")
@click.argument("run", type=int)
@click.option("--why", default="", help="The reason, which stays in the log for good.")
@click.option("--confirm", is_flag=True, help="Do what somebody else has asked for.")
@click.option("--as", "person", required=True, help="Who you are, as in people.yaml.")
@at_place
def erase(place: Place, *, run: int, why: str, confirm: bool, person: str) -> None:
    """Erase what the hosts answered in RUN, for good. It takes two people.

    One asks, with --why; an owner of the area confirms, with --confirm. The log keeps who, why and
    the hash of what was there, so that it still verifies; what it says of the run itself stays.
    """
    from bot.store.runs import NoSuchRun
    from bot.workflow import NotYours, TooLate, Unfit, erasing

    with plainly(), place.database() as database:
        parts = _parts(place, database)
        try:
            if not confirm:
                erasing.ask_to_erase(parts, run, person=person, why=why, login=getpass.getuser())
                click.echo(
                    f"asked for. An owner confirms it: keyturn changelog erase {run} --confirm "
                    "--as …"
                )
                return
            gone = erasing.confirm_erasure(parts, run, person=person, login=getpass.getuser())
        except (NoSuchRun, NotYours, TooLate, Unfit) as trouble:
            stop(str(trouble), FAILED)
    click.echo(f"{gone} answers of hosts were erased; copies of the database may hold them still")


def _parts(place: Place, database: "Database") -> "Parts":
    from bot.dispatch import InProcess
    from bot.policy import PolicyDirectory
    from bot.workflow.parts import Parts
    from connectors.fleet import Fleet
    from connectors.inventory import Inventory
    from connectors.sessions import Sessions

    policies = PolicyDirectory(place.policy())
    fleet = Fleet(Inventory(hosts={}), Sessions(place.policy()))
    return Parts(database, policies, fleet, InProcess())
