"""`keyturn ask`, `runs`, `run`, `approve` and the like: what one does in chat, for scripts."""

import json
import secrets
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from bot.cli.client import (
    ServiceClient,
    build_path,
    escape_for_terminal,
    format_approved_by,
    format_run_state,
    format_time,
    get_run_exit_status,
    json_option,
    parse_time_option,
    pass_service,
    pass_service_without_as,
)
from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    CommandEnvironment,
    RecordNumber,
    exit_with_error,
)
from bot.cli.follow import follow_run
from bot.cli.formatting import format_run_details
from bot.cli.sections import CommandGroup

if TYPE_CHECKING:
    from click.core import Context, Parameter

_MAX_WAIT_SECONDS = 24 * 3600.0
# Of a report's table, in a terminal; whoever passes it on reads all of it.
_MAX_TABLE_ROWS = 40
_NUMBER_ARGUMENT = click.argument("number", type=RecordNumber())
_WHY_OPTION = click.option("--why", default="", help="What the change log shall say about it.")
_DRY_RUN_OPTION = click.option(
    "--dry-run", "dry", is_flag=True, help="Only say what would come of it."
)
# Whoever asks or approves wants to read what came of it; `--wait 0` is for scripts that do not.
_SHORT_WAIT_SECONDS = 20.0


def _create_wait_option(
    default_help: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option. otherwise: what is done if it is left out."""
    return click.option(
        "--wait",
        "seconds",
        is_flag=False,
        flag_value=_MAX_WAIT_SECONDS,
        type=click.FloatRange(0, _MAX_WAIT_SECONDS),
        metavar="SECONDS",
        help=f"Wait until it is over, or for so many seconds at most{default_help}.",
    )


_WAIT_OPTION = _create_wait_option()
_SHORT_WAIT_OPTION = _create_wait_option(
    f"; left out, until it is over or waits for people, and for {_SHORT_WAIT_SECONDS:.0f} "
    "seconds at most"
)


def _complete_runbook(
    context: "Context", _parameter: "Parameter", incomplete: str
) -> list[CompletionItem]:
    """Offer the next word of the runbooks that begin with what stands there already."""
    from runbooks import load_catalogue

    # The settings are read by that: they say where runbooks of one's own are.
    place = context.find_object(CommandEnvironment)
    if place is not None:
        place.get_policy_directory()
    typed: tuple[str, ...] = context.params.get("words") or ()
    found: dict[str, str] = {}
    for words, runbook in load_catalogue().items():
        parts = words.split()
        fits = tuple(parts[: len(typed)]) == typed and len(parts) > len(typed)
        if fits and parts[len(typed)].startswith(incomplete):
            whole = len(parts) == len(typed) + 1
            found.setdefault(parts[len(typed)], (runbook.__doc__ or "").splitlines()[0] * whole)
    return [CompletionItem(word, help=hint) for word, hint in found.items()]


@click.command("ask")
@click.argument(
    "words", nargs=-1, required=True, shell_complete=_complete_runbook, metavar="WORDS HOST…"
)
@_WHY_OPTION
@_DRY_RUN_OPTION
@_SHORT_WAIT_OPTION
@json_option
@pass_service
def request_run(
    service: ServiceClient,
    *,
    words: tuple[str, ...],
    why: str,
    dry: bool,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Ask for WORDS to be done, as one would type them in chat.

    For example: keyturn ask abusers clear lb1 203.0.113.9 --why "ticket 4711"
    """
    import shlex

    body = {"words": shlex.join(words), "reason": why, "dry": dry}
    _post_request(service, "/runs", body, wait_seconds=seconds, as_json=as_json)


@click.command("runs")
@click.option("--host", help="A name, or a pattern such as web*.")
@click.option("--person", help="Who asked.")
@click.option("--runbook", help="Its words.")
@click.option(
    "--state",
    multiple=True,
    help="Such as waiting or 'needs attention'; may be given several times.",
)
@click.option("--since", help="2h, last week, 02:00, 2026-03-01 02:00 Europe/Paris; else UTC.")
@click.option("--until", help="As --since.")
@click.option("--text", help="Words that all occur in it.")
@click.option("-n", "--most", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
@pass_service
def list_runs(service: ServiceClient, *, most: int, as_json: bool, **wanted: Any) -> None:
    """List the newest runs.

    What it finds none of exits with 3 if it names somebody, or something, that never was.
    """
    from bot.model import times

    wanted["since"] = parse_time_option(wanted["since"], times.parse_earliest_moment)
    wanted["until"] = parse_time_option(wanted["until"], times.parse_latest_moment)
    page = service.get("/runs", **wanted, limit=min(most, 200))
    found: list[Mapping[str, Any]] = list(page["runs"])
    while page["next"] and len(found) < most:
        page = service.get_linked(page["next"])
        found += page["runs"]
    unknown_filters = [] if found else list(page["unknown_filters"].values())
    if as_json:
        click.echo(json.dumps(found[:most], ensure_ascii=False))
    for run in () if as_json else found[:most]:
        asked = format_time(run["requested_at"])
        how = f"{format_run_state(run):<15} {run['requested_by']:<10} {run['title']}"
        click.echo(escape_for_terminal(f"{run['id']:>6}  {asked}  {how}{format_approved_by(run)}"))
    if unknown_filters:
        exit_with_error(escape_for_terminal("; ".join(unknown_filters)), NOT_FOUND)
    if not found and not as_json:
        click.echo("there is no such run", err=True)


class _RunGroup(CommandGroup):
    """`keyturn run 7` tells about run 7: `show` need not be said."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        said = args[:1]
        if said and said[0].isdecimal():
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("run", cls=_RunGroup)
def run_commands() -> None:
    """Tell about a run, or settle how it ended: keyturn run 7."""


@run_commands.command("show")
@_NUMBER_ARGUMENT
@click.option("--follow", "following", is_flag=True, help="Tell what happens, until it is over.")
@_WAIT_OPTION
@json_option
@pass_service
def show_run(
    service: ServiceClient, *, number: int, following: bool, seconds: float | None, as_json: bool
) -> None:
    """Tell about run NUMBER: how it is, its plan, and who decided.

    With --follow, what its hosts say comes as they say it, and below it how far the run is.
    """
    if following:
        follow_run(service, number, as_json=as_json)
    _wait_and_print_run(service, number, wait_seconds=seconds or 0.0, as_json=as_json)


@run_commands.command("resolve")
@_NUMBER_ARGUMENT
@click.option(
    "--as",
    "how",
    type=click.Choice(("succeeded", "failed")),
    required=True,
    help="How it ended, as you found on the host.",
)
@click.option("--why", required=True, help="How you know, for the change log.")
@json_option
@pass_service_without_as
def resolve_run(service: ServiceClient, *, number: int, how: str, why: str, as_json: bool) -> None:
    """Say how run NUMBER ended, whose end nobody saw: its host is free again then.

    For example: keyturn run resolve 7 --as failed --why "looked at lb1: the table is untouched"
    """
    body = {"succeeded": how == "succeeded", "why": why}
    _print_run(service.post(build_path("runs", number, "settle"), body), as_json=as_json)


@click.command("approve")
@_NUMBER_ARGUMENT
@click.argument("digest", default="")
@_WHY_OPTION
@_SHORT_WAIT_OPTION
@json_option
@pass_service
def approve_run(
    service: ServiceClient,
    *,
    number: int,
    digest: str,
    why: str,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Approve the plan of run NUMBER that has DIGEST; without one, show it and ask."""
    run = service.get(build_path("runs", number))
    if not digest:
        if not run["digest"] or not sys.stdin.isatty():
            exit_with_error(
                f"say which plan: keyturn approve {number} {run['digest'][:10]}".strip(),
                NOT_UNDERSTOOD,
            )
        click.echo(escape_for_terminal(format_run_details(run)))
        click.confirm(f"Approve this plan, {run['digest'][:10]}?", abort=True, err=True)
        digest = run["digest"]
    service.post(build_path("runs", number, "approve"), {"digest": digest, "reason": why})
    _wait_and_print_run(service, number, wait_seconds=seconds, as_json=as_json)


@click.command("deny")
@_NUMBER_ARGUMENT
@click.option("--why", required=True, help="So that the asker knows.")
@json_option
@pass_service
def deny_run(service: ServiceClient, *, number: int, why: str, as_json: bool) -> None:
    """Say no to run NUMBER: one no ends it."""
    run = service.post(build_path("runs", number, "deny"), {"reason": why})
    _print_run(run, as_json=as_json)


@click.command("withdraw")
@_NUMBER_ARGUMENT
@json_option
@pass_service
def withdraw_run(service: ServiceClient, *, number: int, as_json: bool) -> None:
    """Take your own request back before anything was sent."""
    _print_run(service.post(build_path("runs", number, "withdraw")), as_json=as_json)


@click.command("undo")
@_NUMBER_ARGUMENT
@_WHY_OPTION
@_SHORT_WAIT_OPTION
@json_option
@pass_service
def request_undo(
    service: ServiceClient, *, number: int, why: str, seconds: float | None, as_json: bool
) -> None:
    """Ask to take back what run NUMBER did: a run of its own."""
    path = build_path("runs", number, "undo")
    run = service.post(path, {"reason": why}, idempotency_key=secrets.token_hex(16))
    _wait_and_print_run(service, run["id"], wait_seconds=seconds, as_json=as_json)


@click.command("again")
@_NUMBER_ARGUMENT
@_WHY_OPTION
@_DRY_RUN_OPTION
@_SHORT_WAIT_OPTION
@json_option
@pass_service
def request_again(
    service: ServiceClient,
    *,
    number: int,
    why: str,
    dry: bool,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Ask again for what run NUMBER asked for, which is over: a run of its own.

    It has the same values, and the hosts that they mean by now; the reason is given anew.
    """
    path, body = build_path("runs", number, "again"), {"reason": why, "dry": dry}
    _post_request(service, path, body, wait_seconds=seconds, as_json=as_json)


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def print_completion(*, shell: str) -> None:
    """Print what makes SHELL complete the words of this program.

    For example: keyturn completion bash > /etc/bash_completion.d/keyturn
    """
    root = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    if found is None:
        exit_with_error(f"{shell} is not known here", FAILED)
    click.echo(found(root, {}, "keyturn", "_KEYTURN_COMPLETE").source())


COMMANDS = (
    request_run,
    list_runs,
    run_commands,
    approve_run,
    deny_run,
    withdraw_run,
    request_undo,
    request_again,
    print_completion,
)


def _post_request(
    service: ServiceClient,
    path: str,
    body: Mapping[str, Any],
    *,
    wait_seconds: float | None,
    as_json: bool,
) -> None:
    """Ask, and show what came of it; of a dry request, what would come of it."""
    told = service.post(path, body, idempotency_key=secrets.token_hex(16))
    if told["run"] is None:
        sentences = "\n".join(told["outlook"]["sentences"])
        click.echo(json.dumps(told["outlook"]) if as_json else escape_for_terminal(sentences))
        sys.exit(0 if told["outlook"]["allowed"] else 4)
    for answer in told["outlook"]["answers"] if told["outlook"] and not as_json else ():
        if answer["frozen"] and answer["approvals"]:
            click.echo(
                escape_for_terminal(f"once approved it waits: {answer['frozen']}"), err=True
            )
    _wait_and_print_run(service, told["run"]["id"], wait_seconds=wait_seconds, as_json=as_json)


def _wait_and_print_run(
    service: ServiceClient, run_id: int, *, wait_seconds: float | None, as_json: bool
) -> None:
    """Wait if that is wanted, show the run, and exit as its end says.

    seconds: None for a moment, and no longer than until it waits for people.
    """
    if wait_seconds is None:
        run = service.get(build_path("runs", run_id), wait=_SHORT_WAIT_SECONDS)
    else:
        progress = _ProgressPrinter()
        run = service.wait_until_ended(
            run_id, seconds=wait_seconds, report_run=progress if wait_seconds else _ignore_run
        )
        progress.end_line()
    _print_run(run, as_json=as_json)
    sys.exit(get_run_exit_status(run))


def _print_run(run: Mapping[str, Any], *, as_json: bool) -> None:
    most = _MAX_TABLE_ROWS if sys.stdout.isatty() else None
    told = (
        json.dumps(run, ensure_ascii=False)
        if as_json
        else escape_for_terminal(format_run_details(run, max_rows=most))
    )
    click.echo(told)


def _ignore_run(_run: Mapping[str, Any]) -> None:
    return


class _ProgressPrinter:
    """Tells on standard error how far it is: a bar where a person looks on, else each change."""

    def __init__(self) -> None:
        self._last_line = ""

    def __call__(self, run: Mapping[str, Any]) -> None:
        steps: list[dict[str, Any]] = run["plan"]["steps"] if run["plan"] else []
        done = sum(step["state"] in {"succeeded", "failed"} for step in steps)
        line = f"run {run['id']}: {run['state']}"
        if run["state"] == "pending":
            line += f" for {run['missing_approvals']} of {run['approvals_from']}"
        elif len(steps) > 1:
            line += f", {done} of {len(steps)} steps"
        live = sys.stderr.isatty()
        if live and len(steps) > 1:
            filled = 20 * done // len(steps)
            line = f"[{'#' * filled}{'.' * (20 - filled)}] {line}"
        if line != self._last_line:
            click.echo(
                f"\r\033[K{escape_for_terminal(line)}" if live else escape_for_terminal(line),
                err=True,
                nl=not live,
            )
        self._last_line = line

    def end_line(self) -> None:
        """End the line that was drawn again and again: what comes next has its own."""
        if self._last_line and sys.stderr.isatty():
            click.echo("", err=True)
