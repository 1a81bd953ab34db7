"""Commands that decide runs, from `keyturn approve` to `keyturn break-glass`."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from bot.cli.client import ServiceClient, build_path, parse_time_option, pass_service
from bot.cli.context import NOT_UNDERSTOOD, REFUSED, exit_with_error
from bot.cli.formatting import format_run_details, list_irreversible_steps
from bot.cli.options import START_AT_OPTION, reason_option
from bot.cli.runs import (
    NUMBER_ARGUMENT,
    SHORT_WAIT_OPTION,
    print_run,
    wait_and_print_run,
    warn_of_irreversible_steps,
)
from bot.cli.terminal import escape_for_terminal


@click.command("approve")
@NUMBER_ARGUMENT
@click.argument("digest", default="")
@reason_option()
@START_AT_OPTION
@click.option("--yes", is_flag=True, help="Do not ask about steps that cannot be undone.")
@SHORT_WAIT_OPTION
@pass_service
def approve_run(
    service: ServiceClient,
    *,
    number: int,
    digest: str,
    reason: str,
    start_at: str,
    yes: bool,
    seconds: float | None,
) -> None:
    """Approve the plan DIGEST of run NUMBER. Without DIGEST, show the plan and confirm.

    A terminal asks for confirmation too if a step cannot be undone, unless you say --yes.

    For example: keyturn approve 12 1234567890 --start-at 22:00
    """
    from bot.model.times import parse_deadline

    more = {"start_at": parse_time_option(start_at, parse_deadline)} if start_at else {}
    run = service.get(build_path("runs", number))
    if not digest:
        digest = _confirm_shown_plan(run, "approve")
    elif sys.stdin.isatty() and not yes and list_irreversible_steps(run):
        warn_of_irreversible_steps(run)
        click.confirm(f"Approve plan {digest}?", abort=True, err=True)
    body = {"digest": digest, "reason": reason, **more}
    service.post(build_path("runs", number, "approve"), body)
    wait_and_print_run(service, number, wait_seconds=seconds)


@click.command("hold")
@NUMBER_ARGUMENT
@reason_option()
@pass_service
def hold_run(service: ServiceClient, *, number: int, reason: str) -> None:
    """Hold approved run NUMBER before it starts. It then needs its approvals again.

    For example: keyturn hold 12 --reason "the sale begins early"
    """
    print_run(service.post(build_path("runs", number, "hold"), {"reason": reason}))


@click.command("deny")
@NUMBER_ARGUMENT
@reason_option("Reason, shown to the requester.", required=True)
@pass_service
def deny_run(service: ServiceClient, *, number: int, reason: str) -> None:
    """Deny run NUMBER. One denial ends it.

    For example: keyturn deny 12 --reason "not during the sale"
    """
    run = service.post(build_path("runs", number, "deny"), {"reason": reason})
    print_run(run)


@click.command("withdraw")
@NUMBER_ARGUMENT
@pass_service
def withdraw_run(service: ServiceClient, *, number: int) -> None:
    """Withdraw your own request, before its first step is sent.

    For example: keyturn withdraw 12
    """
    print_run(service.post(build_path("runs", number, "withdraw")))


@click.command("counter")
@NUMBER_ARGUMENT
@click.argument("values", nargs=-1, required=True, metavar="FIELD=VALUE…")
@reason_option("Reason, shown to the requester.")
@SHORT_WAIT_OPTION
@pass_service
def propose_values(
    service: ServiceClient,
    *,
    number: int,
    values: tuple[str, ...],
    reason: str,
    seconds: float | None,
) -> None:
    """Propose other values for run NUMBER, which its requester accepts or withdraws.

    Fields that you do not name keep their values. You cannot approve what you propose.

    For example: keyturn counter 12 address=203.0.113.10 --reason "the other address is ours"
    """
    changed = dict(value.split("=", 1) for value in values if "=" in value)
    if len(changed) < len(values):
        raise click.UsageError("give each value once, as FIELD=VALUE")
    body = {"values": changed, "reason": reason}
    path = build_path("runs", number, "counter")
    run = service.create_run(path, body)
    wait_and_print_run(service, run["id"], wait_seconds=seconds)


@click.command("accept")
@NUMBER_ARGUMENT
@click.argument("digest", default="")
@SHORT_WAIT_OPTION
@pass_service
def accept_proposal(
    service: ServiceClient, *, number: int, digest: str, seconds: float | None
) -> None:
    """Accept the counter-proposal NUMBER for your request, which then needs approval.

    Without DIGEST, show its plan and confirm. Otherwise: keyturn withdraw NUMBER.

    For example: keyturn accept 13 1234567890
    """
    run = service.get(build_path("runs", number))
    digest = digest or _confirm_shown_plan(run, "accept")
    service.post(build_path("runs", number, "accept"), {"digest": digest})
    wait_and_print_run(service, number, wait_seconds=seconds)


@click.command("question")
@NUMBER_ARGUMENT
@click.argument("text")
@pass_service
def ask_question(service: ServiceClient, *, number: int, text: str) -> None:
    """Ask the requester of pending run NUMBER a question. The run stays pending.

    For example: keyturn question 12 "Which ticket is this for?"
    """
    path = build_path("runs", number, "question")
    print_run(service.post(path, {"text": text}))


@click.command("answer")
@NUMBER_ARGUMENT
@click.argument("text")
@pass_service
def answer_question(service: ServiceClient, *, number: int, text: str) -> None:
    """Answer the open questions about your request NUMBER.

    For example: keyturn answer 12 "Ticket 4711"
    """
    path = build_path("runs", number, "answer")
    print_run(service.post(path, {"text": text}))


@click.command("reassign")
@NUMBER_ARGUMENT
@click.argument("assignee", metavar="PERSON")
@reason_option()
@pass_service
def reassign_run(service: ServiceClient, *, number: int, assignee: str, reason: str) -> None:
    """Ask PERSON, who can approve pending run NUMBER too, to decide it.

    They are notified and reminded first. Others who can approve the run still can.

    For example: keyturn reassign 12 adam --reason "it is your load balancer"
    """
    body = {"person": assignee, "reason": reason}
    print_run(service.post(build_path("runs", number, "reassign"), body))


@click.command("review")
@NUMBER_ARGUMENT
@click.option("--findings", required=True, help="Whether emergency and change were justified.")
@pass_service
def review_run(service: ServiceClient, *, number: int, findings: str) -> None:
    """Review run NUMBER, which bypassed its approvals by break-glass.

    The people who could have approved it may review it, except the person who used break-glass.

    For example: keyturn review 12 --findings "the shop was down, and the change was right"
    """
    run = service.post(build_path("runs", number, "review"), {"findings": findings})
    print_run(run)


@click.command("break-glass")
@NUMBER_ARGUMENT
@pass_service
def explain_break_glass(service: ServiceClient, *, number: int) -> None:
    """Show run NUMBER and the page on which break-glass starts it without approvals.

    Break-glass needs your second factor, which only the web page can check. Exits with 4.

    For example: keyturn break-glass 12
    """
    run = service.get(build_path("runs", number))
    print_run(run)
    if run["source"] not in {"slack", "web"} and not run["ended"]:
        exit_with_error(
            "break-glass is for requests from the web or Slack: request the same with "
            f"{_build_form_address(run)}, and use break-glass on its page",
            REFUSED,
        )
    exit_with_error(f"break-glass needs your second factor: open {run['page']}", REFUSED)


def _build_form_address(run: Mapping[str, Any]) -> str:
    """Return the address of the form on the web with the values of a run."""
    from urllib.parse import urlencode

    base = run["page"].rpartition("/runs/")[0]
    if run["undo_of"]:
        return f"{base}/runs/{run['undo_of']}#undo"
    return f"{base}/runbooks/form?{urlencode({'runbook': run['runbook'], **run['values']})}"


def _confirm_shown_plan(run: Mapping[str, Any], action: str) -> str:
    """Show a plan, have it confirmed, and return its digest; exit without a terminal."""
    short_digest = run["digest"][:10]
    if not run["digest"] or not sys.stdin.isatty():
        command = f"keyturn {action} {run['id']} {short_digest}".strip()
        exit_with_error(f"name the plan: {command}", NOT_UNDERSTOOD)
    click.echo(escape_for_terminal(format_run_details(run)))
    warn_of_irreversible_steps(run)
    click.confirm(f"{action.capitalize()} plan {short_digest}?", abort=True, err=True)
    return str(run["digest"])
