"""`keyturn stop`, `resume`, `ban` and `unban`: the emergency brake, also where no door opens."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from bot.cli import offline
from bot.cli.client import json_option, print_result
from bot.cli.context import (
    NOT_UNDERSTOOD,
    CommandEnvironment,
    exit_on_errors,
    exit_on_refusals,
    exit_with_error,
    pass_environment,
)
from connectors.command import quote_text

if TYPE_CHECKING:
    from bot.service import Workflow

_WHY_OPTION = click.option("--why", required=True, help="What the change log shall say about it.")
_AS_OPTION = click.option(
    "--as", "person", required=True, help="The person of the policy who does it."
)


@click.command("stop")
@click.argument("what", metavar="RUN|all")
@_WHY_OPTION
@json_option
@pass_environment
def stop_runs(environment: CommandEnvironment, *, what: str, why: str, as_json: bool) -> None:
    """Stop one run, or everything, before the next step or host.

    What is on its way is finished as a step. After `stop all` nothing goes to any host until
    somebody resumes it; a service that runs sees it before its next step.
    """
    with open_workflow(environment) as workflow:
        if what == "all":
            number = workflow.stop_everything(person="", reason=why)
            were = "1 run was" if number == 1 else f"{number} runs were"
            said = f"everything is stopped; {were} not over"
            onward = "let it go on with: keyturn resume --as PERSON --why REASON"
            print_result({"stopped": True, "runs": number}, [said, onward], as_json=as_json)
            return
        if not (what.isascii() and what.isdecimal() and len(what) <= 9):
            exit_with_error(
                f"stop which run? keyturn stop N, or keyturn stop all; not {quote_text(what)}",
                NOT_UNDERSTOOD,
            )
        run = workflow.stop_run(int(what), person="", reason=why)
    said = f"run {run.id}: {run.summary if run.is_ended else 'ends before its next step'}"
    print_result(offline.run_to_data(environment, run), [said], as_json=as_json)


@click.command("resume")
@_AS_OPTION
@_WHY_OPTION
@json_option
@pass_environment
def resume_runs(environment: CommandEnvironment, *, person: str, why: str, as_json: bool) -> None:
    """Let everything go on after `stop all`. What was stopped is asked for anew."""
    with open_workflow(environment) as workflow:
        workflow.resume_everything(person=person, reason=why)
    print_result({"stopped": False}, ["everything may go on"], as_json=as_json)


@click.command("ban")
@click.argument("who", metavar="PERSON")
@_AS_OPTION
@_WHY_OPTION
@json_option
@pass_environment
def ban_person(
    environment: CommandEnvironment, *, who: str, person: str, why: str, as_json: bool
) -> None:
    """Shut PERSON out at once and everywhere.

    Their sessions end, their tokens are revoked for good, their requests are refused, their
    approvals count no more, and what runs for them stops before its next step or host.
    """
    with open_workflow(environment) as workflow:
        workflow.ban_person(who, banned_by=person, reason=why, requires_factor=False)
    said = f"{who} is shut out; their sessions have ended, and their tokens are revoked for good"
    back = f"somebody else lets them in again with: keyturn unban {who} --as PERSON --why REASON"
    print_result({"person": who, "banned": True}, [said, back], as_json=as_json)


@click.command("unban")
@click.argument("who", metavar="PERSON")
@_AS_OPTION
@_WHY_OPTION
@json_option
@pass_environment
def unban_person(
    environment: CommandEnvironment, *, who: str, person: str, why: str, as_json: bool
) -> None:
    """Let PERSON in again. Their tokens stay revoked: they make new ones."""
    with open_workflow(environment) as workflow:
        workflow.unban_person(who, unbanned_by=person, reason=why)
    said = f"{who} is let in again, and signs in anew"
    more = f"the tokens they had stay revoked; a new one: keyturn token new {who} --scope SCOPE"
    print_result({"person": who, "banned": False}, [said, more], as_json=as_json)


COMMANDS = (stop_runs, resume_runs, ban_person, unban_person)


@contextmanager
def open_workflow(environment: CommandEnvironment) -> "Generator[Workflow]":
    """Open the workflow on the database alone. A refusal is one line."""
    from bot.service import Workflow

    with exit_on_errors(), environment.open_database() as database, exit_on_refusals():
        yield Workflow(offline.build_workflow_context(environment, database))
