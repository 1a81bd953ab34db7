"""`keyturn stop`, `resume`, `ban` and `unban`, which work on the database alone."""

import click

from bot.cli.context import (
    NOT_UNDERSTOOD,
    CommandEnvironment,
    exit_with_error,
    open_service,
    run_to_data,
)
from bot.cli.options import acting_person_option, pass_environment, reason_option
from bot.cli.terminal import print_result
from connectors.visible_text import quote_text

_REASON_OPTION = reason_option(required=True)


@click.command("stop")
@click.argument("what", metavar="RUN|all|agent")
@click.argument("name", default="")
@_REASON_OPTION
@pass_environment
def stop_runs(environment: CommandEnvironment, *, what: str, name: str, reason: str) -> None:
    """Stop one run, everything, or agent NAME, before the next step or host.

    The current step finishes. After `stop all`, Keyturn sends nothing to any host until
    `keyturn resume`. A running service sees the stop before its next step. `stop agent NAME` stops
    the open runs of an agent and pauses it.

    For example: keyturn stop all --reason "the network is failing"
    """
    if (what == "agent") != bool(name):
        exit_with_error("use keyturn stop N, stop all or stop agent NAME", NOT_UNDERSTOOD)
    with open_service(environment) as service:
        if what == "agent":
            stopped = service.agents.stop_agent(name, person="", reason=reason)
            runs = f"runs {', '.join(map(str, stopped))} stopped" if stopped else "no open runs"
            lines = [
                f"{name} is paused; {runs}.",
                f"To resume: keyturn agent resume {name} --as PERSON --reason REASON",
            ]
            print_result({"agent": name, "stopped_runs": stopped}, lines)
            return
        if what == "all":
            number = service.stop_everything(person="", reason=reason)
            runs = "1 open run" if number == 1 else f"{number} open runs"
            lines = [
                f"Everything is stopped, with {runs}.",
                "To resume: keyturn resume --as PERSON --reason REASON",
            ]
            print_result({"stopped": True, "runs": number}, lines)
            return
        if not (what.isascii() and what.isdecimal() and len(what) <= 9):
            exit_with_error(
                f"invalid run {quote_text(what)}: use keyturn stop N or keyturn stop all",
                NOT_UNDERSTOOD,
            )
        run = service.stop_run(int(what), person="", reason=reason)
    line = f"run {run.id}: {run.summary if run.is_ended else 'stops before its next step'}"
    print_result(run_to_data(environment, run), [line])


@click.command("resume")
@acting_person_option
@_REASON_OPTION
@pass_environment
def resume_runs(environment: CommandEnvironment, *, person: str, reason: str) -> None:
    """Resume after `stop all`. Stopped runs must be requested again.

    For example: keyturn resume --as olga --reason "the network is repaired"
    """
    with open_service(environment, person) as service:
        service.resume_everything(person=person, reason=reason)
    print_result({"stopped": False}, ["Resumed. Request stopped runs again."])


@click.command("ban")
@click.argument("who", metavar="PERSON")
@acting_person_option
@_REASON_OPTION
@pass_environment
def ban_person(environment: CommandEnvironment, *, who: str, person: str, reason: str) -> None:
    """Ban PERSON immediately.

    Ends their sessions, revokes their tokens permanently, refuses their requests, voids their
    approvals, and stops their runs before the next step or host.

    For example: keyturn ban dora --as olga --reason "her laptop was stolen"
    """
    with open_service(environment, person) as service:
        service.ban_person(who, banned_by=person, reason=reason, requires_factor=False)
    lines = [
        f"{who} is banned. Their sessions ended and their tokens are revoked permanently.",
        f"To lift the ban (another person): keyturn unban {who} --as PERSON --reason REASON",
    ]
    print_result({"person": who, "banned": True}, lines)


@click.command("unban")
@click.argument("who", metavar="PERSON")
@acting_person_option
@_REASON_OPTION
@pass_environment
def unban_person(environment: CommandEnvironment, *, who: str, person: str, reason: str) -> None:
    """Lift the ban of PERSON. Their tokens stay revoked.

    For example: keyturn unban dora --as adam --reason "she has a new laptop"
    """
    with open_service(environment, person) as service:
        service.unban_person(who, unbanned_by=person, reason=reason)
    lines = [
        f"{who} is no longer banned and can sign in.",
        f"Their tokens stay revoked. For a new one: keyturn token new {who} --scope SCOPE",
    ]
    print_result({"person": who, "banned": False}, lines)
