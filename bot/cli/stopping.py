"""`keyturn stop`, `resume`, `ban` and `unban`: the emergency brake, also where no door opens."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from bot.cli import alone
from bot.cli.place import NOT_UNDERSTOOD, Place, at_place, considered, plainly, stop

if TYPE_CHECKING:
    from bot.workflow import Workflow

_WHY = click.option("--why", required=True, help="What the change log shall say about it.")
_AS = click.option("--as", "person", required=True, help="The person of the policy who does it.")


@click.command("stop")
@click.argument("what", metavar="RUN|all")
@_WHY
@at_place
def stop_runs(place: Place, *, what: str, why: str) -> None:
    """Stop one run, or everything, before the next step or host.

    What is on its way is finished as a step. After `stop all` nothing goes to any host until
    somebody resumes it; a service that runs sees it before its next step.
    """
    with working(place) as workflow:
        if what == "all":
            number = workflow.stop_all(person="", why=why)
            were = "1 run was" if number == 1 else f"{number} runs were"
            click.echo(f"everything is stopped; {were} not over")
            click.echo("let it go on with: keyturn resume --as PERSON --why REASON")
            return
        if not (what.isascii() and what.isdecimal() and len(what) <= 9):
            stop(
                f"stop which run? keyturn stop N, or keyturn stop all; not {what!r}",
                NOT_UNDERSTOOD,
            )
        run = workflow.stop(int(what), person="", why=why)
    click.echo(f"run {run.id}: {run.summary if run.over else 'ends before its next step'}")


@click.command()
@_AS
@_WHY
@at_place
def resume(place: Place, *, person: str, why: str) -> None:
    """Let everything go on after `stop all`. What was stopped is asked for anew."""
    with working(place) as workflow:
        workflow.resume(person=person, why=why)
    click.echo("everything may go on")


@click.command()
@click.argument("person")
@_WHY
@at_place
def ban(place: Place, *, person: str, why: str) -> None:
    """Shut PERSON out at once and everywhere.

    Their sessions end, their requests are refused, their approvals count no more, and what runs
    for them stops before its next step or host.
    """
    with working(place) as workflow:
        workflow.ban(person, by="", why=why)
    click.echo(f"{person} is shut out; let them in again with: keyturn unban {person} --as PERSON")


@click.command()
@click.argument("who", metavar="PERSON")
@_AS
@_WHY
@at_place
def unban(place: Place, *, who: str, person: str, why: str) -> None:
    """Let PERSON in again."""
    with working(place) as workflow:
        workflow.unban(who, by=person, why=why)
    click.echo(f"{who} is let in again")


COMMANDS = (stop_runs, resume, ban, unban)


@contextmanager
def working(place: Place) -> "Generator[Workflow]":
    """Open the workflow on the database alone. A refusal is one line."""
    from bot.workflow import Workflow

    with plainly(), place.database() as database, considered():
        yield Workflow(alone.parts(place, database))
