"""`keyturn stop`, `resume`, `ban` and `unban`: the emergency brake, also where no door opens."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from bot.cli import offline
from bot.cli.client import as_json, print_result
from bot.cli.context import NOT_UNDERSTOOD, Place, at_place, considered, plainly, stop
from connectors.command import quote_text

if TYPE_CHECKING:
    from bot.service import Workflow

_WHY = click.option("--why", required=True, help="What the change log shall say about it.")
_AS = click.option("--as", "person", required=True, help="The person of the policy who does it.")


@click.command("stop")
@click.argument("what", metavar="RUN|all")
@_WHY
@as_json
@at_place
def stop_runs(place: Place, *, what: str, why: str, as_json: bool) -> None:
    """Stop one run, or everything, before the next step or host.

    What is on its way is finished as a step. After `stop all` nothing goes to any host until
    somebody resumes it; a service that runs sees it before its next step.
    """
    with working(place) as workflow:
        if what == "all":
            number = workflow.stop_all(person="", why=why)
            were = "1 run was" if number == 1 else f"{number} runs were"
            said = f"everything is stopped; {were} not over"
            onward = "let it go on with: keyturn resume --as PERSON --why REASON"
            print_result({"stopped": True, "runs": number}, [said, onward], as_json=as_json)
            return
        if not (what.isascii() and what.isdecimal() and len(what) <= 9):
            stop(
                f"stop which run? keyturn stop N, or keyturn stop all; not {quote_text(what)}",
                NOT_UNDERSTOOD,
            )
        run = workflow.stop(int(what), person="", why=why)
    said = f"run {run.id}: {run.summary if run.over else 'ends before its next step'}"
    print_result(offline.run_as_data(place, run), [said], as_json=as_json)


@click.command()
@_AS
@_WHY
@as_json
@at_place
def resume(place: Place, *, person: str, why: str, as_json: bool) -> None:
    """Let everything go on after `stop all`. What was stopped is asked for anew."""
    with working(place) as workflow:
        workflow.resume(person=person, why=why)
    print_result({"stopped": False}, ["everything may go on"], as_json=as_json)


@click.command()
@click.argument("who", metavar="PERSON")
@_AS
@_WHY
@as_json
@at_place
def ban(place: Place, *, who: str, person: str, why: str, as_json: bool) -> None:
    """Shut PERSON out at once and everywhere.

    Their sessions end, their tokens are revoked for good, their requests are refused, their
    approvals count no more, and what runs for them stops before its next step or host.
    """
    with working(place) as workflow:
        workflow.ban(who, by=person, why=why, factor=False)
    said = f"{who} is shut out; their sessions have ended, and their tokens are revoked for good"
    back = f"somebody else lets them in again with: keyturn unban {who} --as PERSON --why REASON"
    print_result({"person": who, "banned": True}, [said, back], as_json=as_json)


@click.command()
@click.argument("who", metavar="PERSON")
@_AS
@_WHY
@as_json
@at_place
def unban(place: Place, *, who: str, person: str, why: str, as_json: bool) -> None:
    """Let PERSON in again. Their tokens stay revoked: they make new ones."""
    with working(place) as workflow:
        workflow.unban(who, by=person, why=why)
    said = f"{who} is let in again, and signs in anew"
    more = f"the tokens they had stay revoked; a new one: keyturn token new {who} --scope SCOPE"
    print_result({"person": who, "banned": False}, [said, more], as_json=as_json)


COMMANDS = (stop_runs, resume, ban, unban)


@contextmanager
def working(place: Place) -> "Generator[Workflow]":
    """Open the workflow on the database alone. A refusal is one line."""
    from bot.service import Workflow

    with plainly(), place.database() as database, considered():
        yield Workflow(offline.parts(place, database))
