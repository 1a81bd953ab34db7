"""`keyturn request`, `plan`, `runs`, `run` and other commands for runs."""

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from bot.cli.client import (
    ServiceClient,
    build_path,
    format_approved_by,
    get_run_exit_status,
    parse_time_option,
    pass_service,
)
from bot.cli.completion import complete, complete_request
from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    WAITING,
    RecordNumber,
    exit_with_error,
    is_interactive,
    wants_json,
)
from bot.cli.formatting import format_requester, format_run_details, list_irreversible_steps
from bot.cli.options import limit_option, option_with_aliases, reason_option, ticket_option
from bot.cli.progress import LiveLine, follow_run
from bot.cli.sections import CommandGroup
from bot.cli.terminal import (
    escape_for_terminal,
    format_sentence_times,
    format_time,
    print_json,
    print_table,
    style_run,
)
from bot.model.text import format_count

if TYPE_CHECKING:
    from click.core import Context

_MAX_WAIT_SECONDS = 24 * 3600.0
# Rows of a report's table in a terminal; a pipe or a file gets all of them.
_MAX_TABLE_ROWS = 40
NUMBER_ARGUMENT = click.argument("number", type=RecordNumber(), shell_complete=complete("run"))
_WORDS_ARGUMENT = click.argument(
    "words", nargs=-1, required=True, shell_complete=complete_request, metavar="RUNBOOK HOST…"
)
_REASON_OPTION = reason_option()
PLAN_OPTION = option_with_aliases(
    "--plan",
    "--dry-run",
    "plan_only",
    is_flag=True,
    help="Show the plan and who would approve it; request nothing.",
)
# People want to see the result of a request or approval; scripts can use `--wait 0`.
_SHORT_WAIT_SECONDS = 20.0
# States in which a run does not continue without people.
_AT_REST = ("planned", "pending", "counter_proposed", "unknown")


def _create_wait_option(
    default_help: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return `--wait`.

    Args:
        default_help: What happens without the option.
    """
    return click.option(
        "--wait",
        "seconds",
        is_flag=False,
        flag_value=_MAX_WAIT_SECONDS,
        type=click.FloatRange(0, _MAX_WAIT_SECONDS),
        metavar="SECONDS",
        help=f"Wait until the run ends, at most so many seconds{default_help}.",
    )


_WAIT_OPTION = _create_wait_option()
SHORT_WAIT_OPTION = _create_wait_option(
    f". Until it needs people, if it does. Default: at most {_SHORT_WAIT_SECONDS:.0f} seconds"
)


@click.command("request")
@_WORDS_ARGUMENT
@_REASON_OPTION
@click.option(
    "--override",
    "guard_override",
    default="",
    metavar="CUTSET",
    help='Take down a cut set that the redundancy guard refused: "shop: lb1, lb2".',
)
@ticket_option
@PLAN_OPTION
@SHORT_WAIT_OPTION
@pass_service
def request_run(
    service: ServiceClient,
    *,
    words: tuple[str, ...],
    reason: str,
    plan_only: bool,
    seconds: float | None,
    **terms: str,
) -> None:
    """Request a run of RUNBOOK on HOST, typed as in chat.

    For example: keyturn request abusers clear lb1 203.0.113.9 --reason "ticket 4711"
    """
    import shlex

    body = {"request": shlex.join(words), "reason": reason, **terms}
    if plan_only:
        _plan(service, body)
    elif is_interactive() and _is_change(service, words):
        _submit_after_confirmation(service, _post_plan(service, body), wait_seconds=seconds)
    else:
        _post_request(service, "/runs", body, wait_seconds=seconds)


@click.command("plan")
@_WORDS_ARGUMENT
@_REASON_OPTION
@ticket_option
@pass_service
def plan_run(service: ServiceClient, *, words: tuple[str, ...], reason: str, ticket: str) -> None:
    """Show what RUNBOOK would change on HOST and who would approve it; run nothing.

    The plan is kept for 15 minutes. In a terminal, you can request it right away.

    For example: keyturn plan abusers clear lb1 203.0.113.9
    """
    import shlex

    body = {"request": shlex.join(words), "reason": reason, "ticket": ticket}
    _plan(service, body)


@click.command("submit")
@NUMBER_ARGUMENT
@click.argument("digest")
@_REASON_OPTION
@SHORT_WAIT_OPTION
@pass_service
def submit_plan(
    service: ServiceClient, *, number: int, digest: str, reason: str, seconds: float | None
) -> None:
    """Request what plan NUMBER shows; DIGEST names the plan.

    It runs if it needs no approval; otherwise its approvers are asked.

    For example: keyturn submit 12 1234567890
    """
    body = {"digest": digest, "reason": reason}
    service.post(build_path("runs", number, "request"), body)
    wait_and_print_run(service, number, wait_seconds=seconds)


@click.command("replan")
@NUMBER_ARGUMENT
@SHORT_WAIT_OPTION
@pass_service
def replan_run(service: ServiceClient, *, number: int, seconds: float | None) -> None:
    """Plan request NUMBER again, whose plan is not current any more.

    Its values and its reason stay; its approvers see what is different.

    For example: keyturn replan 12
    """
    run = service.create_run(build_path("runs", number, "replan"))
    wait_and_print_run(service, run["id"], wait_seconds=seconds)


@click.command("runs")
@click.option("--host", help="A name, or a pattern such as web*.", shell_complete=complete("host"))
@click.option("--person", help="The requester.", shell_complete=complete("person"))
@click.option("--runbook", help="Name of the runbook.")
@click.option(
    "--state",
    multiple=True,
    help="Such as pending or 'needs attention'; repeatable.",
    shell_complete=complete("state"),
)
@click.option(
    "--since", help="2h, last week, 02:00, 2026-03-01 02:00 Europe/Paris. Default zone: yours."
)
@click.option("--until", help="Same formats as --since.")
@option_with_aliases("--search", "--text", "search", help="Words that all occur in the run.")
@limit_option(20, help_text="Number of runs.")
@pass_service
def list_runs(service: ServiceClient, *, limit: int, **filters: Any) -> None:
    """List the newest runs.

    Exits with 3 if no run matches because a named person, host or runbook does not exist.

    For example: keyturn runs --host 'lb*' --state pending --since 2h
    """
    from bot.model import times

    filters["since"] = parse_time_option(filters["since"], times.parse_earliest_time)
    filters["until"] = parse_time_option(filters["until"], times.parse_latest_time)
    page = service.get("/runs", **filters, limit=min(limit, 200))
    found: list[Mapping[str, Any]] = list(page["runs"])
    while page["next"] and len(found) < limit:
        page = service.get_linked(page["next"])
        found += page["runs"]
    unknown_filters = [] if found else list(page["unknown_filters"].values())
    if unknown_filters:
        if wants_json():
            print_json([])
        exit_with_error("; ".join(unknown_filters), NOT_FOUND)
    print_table(
        found[:limit],
        ("RUN", "REQUESTED", "STATE", "BY", "REQUEST"),
        [_build_run_row(run) for run in found[:limit]],
        empty_message="No matching runs.",
    )


def _build_run_row(run: Mapping[str, Any]) -> tuple[str, ...]:
    title = f"{run['title']}{format_approved_by(run)}"
    requested_at = format_time(run["requested_at"])
    return (str(run["id"]), requested_at, run["label"], format_requester(run), title)


class _RunGroup(CommandGroup):
    """Makes `keyturn run 7` mean `keyturn run show 7`."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        if args and args[0].isdecimal():
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("run", cls=_RunGroup)
def run_commands() -> None:
    """Show a run (keyturn run 7), or resolve an unknown outcome."""


@run_commands.command("show")
@NUMBER_ARGUMENT
@click.option("--follow", "following", is_flag=True, help="Print live output until the run ends.")
@_WAIT_OPTION
@pass_service
def show_run(
    service: ServiceClient, *, number: int, following: bool, seconds: float | None
) -> None:
    """Show run NUMBER with its state, plan, decisions and output.

    With --follow, output of its hosts is printed as it arrives, and the progress below it.
    Without --follow and --wait, the exit status is 0 also for a run that has not ended.

    For example: keyturn run 12 --follow
    """
    if following:
        follow_run(service, number)
        seconds = 0.0
    if seconds is None:
        run = service.get(build_path("runs", number))
    else:
        # To the end, also while people decide.
        run = _wait_for_run(service, number, wait_seconds=seconds, final_states=("unknown",))
    print_run(run)
    status = get_run_exit_status(run)
    sys.exit(0 if status == WAITING and seconds is None else status)


@run_commands.command("document")
@NUMBER_ARGUMENT
@click.option(
    "--section",
    type=click.IntRange(1),
    metavar="N",
    help="Print the Nth section, which the Nth line “host” of the document names.",
)
@pass_service
def show_plan_document(service: ServiceClient, *, number: int, section: int | None) -> None:
    """Print the plan of run NUMBER as people sign it; its SHA-256 is the digest.

    For example: keyturn run document 12 | sha256sum
    """
    plan = service.get(build_path("runs", number, "document"))
    if wants_json():
        print_json(plan)
        return
    texts = [plan["document"], *(each["text"] for each in plan["sections"])]
    if (section or 0) >= len(texts):
        exit_with_error(f"the document has {format_count(len(texts) - 1, 'section')}", NOT_FOUND)
    sys.stdout.write(texts[section or 0])


@run_commands.command("resolve")
@NUMBER_ARGUMENT
@click.option(
    "--result",
    type=click.Choice(("succeeded", "failed")),
    required=True,
    help="Outcome, as you determined it on the host.",
)
@reason_option("How you know the outcome; recorded in the change log.", required=True)
@pass_service
def resolve_run(service: ServiceClient, *, number: int, result: str, reason: str) -> None:
    """Resolve run NUMBER with an unknown outcome, and unlock its host.

    For example: keyturn run resolve 7 --result failed --reason "the table on lb1 is unchanged"
    """
    body = {"succeeded": result == "succeeded", "reason": reason}
    print_run(service.post(build_path("runs", number, "resolve"), body))


@click.command("undo")
@click.argument("number", type=RecordNumber(), required=False, shell_complete=complete("run"))
@click.option("--person", help="Undo what this person did.", shell_complete=complete("person"))
@click.option("--token-prefix", "token", metavar="PREFIX", help="Undo what this API token did.")
@click.option("--schedule", type=RecordNumber(), help="Undo the last due time of this schedule.")
@click.option("--since", help="Only runs that began since then, such as 2h or 2026-03-01.")
@click.option("--until", help="Only runs that began before then.")
@click.option("--area", help="Only on hosts of this area.", shell_complete=complete("area"))
@ticket_option
@_REASON_OPTION
@PLAN_OPTION
@SHORT_WAIT_OPTION
@pass_service
def request_undo(
    service: ServiceClient,
    *,
    number: int | None,
    reason: str,
    plan_only: bool,
    seconds: float | None,
    **selection: Any,
) -> None:
    """Request the undo of run NUMBER, or of what a person, token or schedule did, as a new run.

    In a terminal, an undo that cannot be undone itself is shown first and has to be confirmed.

    For example: keyturn undo --person dora --since 2h --reason "her laptop was stolen"
    """
    from bot.model import times

    ticket = selection.pop("ticket")
    given = {name: value for name, value in selection.items() if value}
    if (number is None) != bool(given):
        raise click.UsageError("name one run, or --person, --token-prefix or --schedule")
    for name, parse in (("since", times.parse_earliest_time), ("until", times.parse_latest_time)):
        if name in given:
            given[name] = parse_time_option(given[name], parse)
    path = "/undo" if number is None else build_path("runs", number, "undo")
    is_confirmed = is_interactive() and not plan_only
    body = {
        "reason": reason,
        "ticket": ticket,
        "plan_only": plan_only or is_confirmed,
        **given,
    }
    run = service.create_run(path, body)
    if is_confirmed:
        planned = _wait_for_run(service, run["id"], wait_seconds=None)
        _submit_after_confirmation(service, planned, wait_seconds=seconds)
    else:
        wait_and_print_run(service, run["id"], wait_seconds=seconds)


@click.command("again")
@NUMBER_ARGUMENT
@_REASON_OPTION
@ticket_option
@PLAN_OPTION
@SHORT_WAIT_OPTION
@pass_service
def request_again(
    service: ServiceClient, *, number: int, plan_only: bool, seconds: float | None, **terms: str
) -> None:
    """Request ended run NUMBER again, as a new run.

    It has the same values; a pattern or tag selects the hosts that match it now.

    For example: keyturn again 12 --reason "the host is back"
    """
    if plan_only:
        ended = service.get(build_path("runs", number))
        if ended["undo_of"] is not None:
            exit_with_error(
                f"run {number} is an undo: keyturn undo {ended['undo_of']} --plan", NOT_UNDERSTOOD
            )
        _plan(service, {"request": ended["request"], **terms})
        return
    path = build_path("runs", number, "again")
    _post_request(service, path, terms, wait_seconds=seconds)


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def print_completion(*, shell: str) -> None:
    """Print a completion script for SHELL.

    For example: keyturn completion bash > /etc/bash_completion.d/keyturn
    """
    root = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    if found is None:
        exit_with_error(f"unknown shell {shell}", FAILED)
    click.echo(found(root, {}, "keyturn", "_KEYTURN_COMPLETE").source())


def _post_request(
    service: ServiceClient, path: str, body: Mapping[str, Any], *, wait_seconds: float | None
) -> None:
    """Post a request and show its run."""
    result = service.create_run(path, body)
    for area in result["preview"]["areas"] if not wants_json() else ():
        if area["frozen"] and area["required_approvals"]:
            _warn_of_freeze("on hold after approval", area["frozen"])
    wait_and_print_run(service, result["run"]["id"], wait_seconds=wait_seconds)


def _warn_of_freeze(label: str, freeze: str) -> None:
    click.echo(escape_for_terminal(f"{label}: {format_sentence_times(freeze)}"), err=True)


def _is_change(service: ServiceClient, words: Sequence[str]) -> bool:
    """Return whether the words name a change, by the catalogue of the service."""
    typed = [word.lower() for word in words]
    listed = service.get("/runbooks", prefix=typed[0])["runbooks"]
    names = {one["name"]: one["kind"] for one in listed}
    matching = (" ".join(typed[:count]) for count in range(len(typed), 0, -1))
    return next((names[name] for name in matching if name in names), "") == "change"


def _post_plan(service: ServiceClient, body: Mapping[str, Any]) -> dict[str, Any]:
    """Have a change planned; return the run once it has its plan, or has ended without one."""
    return service.create_run("/plans", body, wait=_SHORT_WAIT_SECONDS)


def _plan(service: ServiceClient, body: Mapping[str, Any]) -> None:
    """Print a plan. In a terminal, offer to request it."""
    run = _post_plan(service, body)
    print_run(run)
    if run["state"] != "planned" or not is_interactive():
        sys.exit(get_run_exit_status(run))
    warn_of_irreversible_steps(run)
    question = "Request approval?" if run["missing_approvals"] else "Run it now?"
    if click.confirm(question, err=True):
        _submit(service, run, wait_seconds=None)


def _submit_after_confirmation(
    service: ServiceClient, run: Mapping[str, Any], *, wait_seconds: float | None
) -> None:
    """Request what a plan shows; if it cannot be undone, show it first and have it confirmed."""
    if run["state"] != "planned":
        wait_and_print_run(service, run["id"], wait_seconds=wait_seconds)
    if list_irreversible_steps(run):
        print_run(run)
        warn_of_irreversible_steps(run)
        click.confirm("Request it all the same?", abort=True, err=True)
    _submit(service, run, wait_seconds=wait_seconds)


def _submit(service: ServiceClient, run: Mapping[str, Any], *, wait_seconds: float | None) -> None:
    """Request what a plan shows, wait and print the run."""
    if run["frozen"]:
        after = " after approval" if run["missing_approvals"] else ""
        _warn_of_freeze(f"on hold{after}", run["frozen"])
    service.post(build_path("runs", run["id"], "request"), {"digest": run["digest"]})
    wait_and_print_run(service, run["id"], wait_seconds=wait_seconds)


def warn_of_irreversible_steps(run: Mapping[str, Any]) -> None:
    for sentence in list_irreversible_steps(run):
        click.secho(escape_for_terminal(sentence), err=True, fg="red")


def wait_and_print_run(service: ServiceClient, run_id: int, *, wait_seconds: float | None) -> None:
    """Wait for the run, print it, and exit with the status of its state.

    Args:
        wait_seconds: None to wait a short time.
    """
    run = _wait_for_run(service, run_id, wait_seconds=wait_seconds)
    print_run(run)
    if run["state"] in _AT_REST and not wants_json():
        click.echo(escape_for_terminal(_describe_rest(run)), err=True)
    sys.exit(get_run_exit_status(run))


def _describe_rest(run: Mapping[str, Any]) -> str:
    """Return what a run that does not continue by itself waits for, and how to go on."""
    number = run["id"]
    if run["state"] == "pending":
        return (
            f"run {number} waits for {run['missing_approvals']} more approval"
            f"{'s'[: run['missing_approvals'] != 1]} from {run['approvals_from']}. To wait for "
            f"its end: keyturn run show {number} --wait"
        )
    if run["state"] == "planned":
        return f"run {number} is a plan: keyturn submit {number} {run['digest'][:10]}"
    return f"run {number} waits for a person: keyturn run show {number}"


def _wait_for_run(
    service: ServiceClient,
    run_id: int,
    *,
    wait_seconds: float | None,
    final_states: Sequence[str] = _AT_REST,
) -> dict[str, Any]:
    """Return a run once it has ended, needs people, or the time is over; show its progress.

    Args:
        wait_seconds: None to wait a short time.
        final_states: States at which to return before the end.
    """
    progress = _RunProgress()
    is_shown = progress.line.is_live if wait_seconds is None else bool(wait_seconds)
    run = service.wait_until_ended(
        run_id,
        seconds=_SHORT_WAIT_SECONDS if wait_seconds is None else wait_seconds,
        report_run=progress if is_shown else None,
        final_states=final_states,
    )
    progress.line.clear()
    return run


def print_run(run: Mapping[str, Any]) -> None:
    if wants_json():
        print_json(run)
        return
    max_rows = _MAX_TABLE_ROWS if sys.stdout.isatty() else None
    text = escape_for_terminal(format_run_details(run, max_rows=max_rows))
    click.echo(style_run(text, run["label"]))


class _RunProgress:
    """Shows how far a run is."""

    def __init__(self) -> None:
        self.line = LiveLine()
        self._began = time.monotonic()
        self._frames = itertools.cycle("|/-\\")

    def __call__(self, run: Mapping[str, Any]) -> None:
        if run["ended"] and not self.line.is_live:
            # What is printed next is the only verdict.
            return
        steps: list[dict[str, Any]] = run["plan"]["steps"] if run["plan"] else []
        done, total = sum(step["state"] in {"succeeded", "failed"} for step in steps), len(steps)
        text = f"run {run['id']}: {run['label']}"
        sign = next(self._frames)
        if run["state"] == "pending":
            text += f", needs {run['missing_approvals']} of {run['approvals_from']}"
        elif total > 1:
            text += f", {done} of {total} steps"
        if total > 1:
            filled = 20 * done // total
            sign = f"{sign} [{'#' * filled}{'.' * (20 - filled)}]"
        drawn = f"{sign} {text}, {time.monotonic() - self._began:.0f} s"
        self.line.show(text, drawn=drawn)
