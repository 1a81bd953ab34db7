"""`keyturn drift …`: values that changed outside Keyturn, and the answers to that."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from bot.cli.client import (
    ServiceClient,
    build_path,
    parse_time_option,
    pass_service,
)
from bot.cli.completion import complete
from bot.cli.context import WAITING, RecordNumber, exit_with_error
from bot.cli.options import reason_option, ticket_option
from bot.cli.runs import SHORT_WAIT_OPTION, wait_and_print_run
from bot.cli.sections import CommandGroup
from bot.cli.terminal import format_time, print_result, print_table
from bot.model.text import format_count

# By the state in the API, as chat and pages show it.
_STATES: Mapping[str, str] = {
    "as_set": "as set",
    "changed": "changed outside",
    "missing": "missing",
    "unreadable": "cannot be read",
}
_READ_SECONDS, _POLL_SECONDS = 60, 1
_NUMBER_ARGUMENT = click.argument("number", type=RecordNumber())


@click.group("drift", cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def drift_commands(ctx: click.Context) -> None:
    """Show what changed outside Keyturn since Keyturn set it, and decide what to do."""
    if ctx.invoked_subcommand is None:
        with list_drift.make_context("list", [], parent=ctx) as inner:
            list_drift.invoke(inner)


@drift_commands.command("list")
@click.argument("host", default="", shell_complete=complete("host"))
@click.option("--state", type=click.Choice([*_STATES]), help="Only values in this state.")
@pass_service
def list_drift(service: ServiceClient, *, host: str, state: str | None) -> None:
    """List the values that Keyturn watches, those that changed outside first.

    For example: keyturn drift list web1 --state changed
    """
    _print_keys(service.get("/drift", host=host, state=state)["keys"])


def _print_keys(found: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        found,
        ("NO.", "HOST", "SET", "STATE", "SINCE", "VALUE"),
        [_build_row(key) for key in found],
        empty_message="Keyturn watches no value here.",
    )


@drift_commands.command("show")
@_NUMBER_ARGUMENT
@pass_service
def show_drift(service: ServiceClient, *, number: int) -> None:
    """Show value NUMBER: when it changed, and what happened on its host then.

    For example: keyturn drift show 3
    """
    key = service.get(build_path("drift", number))
    print_result(key, [_format_details(key)])


@drift_commands.command("read")
@click.argument("host", shell_complete=complete("host"))
@pass_service
def read_drift(service: ServiceClient, *, host: str) -> None:
    """Read the watched values of HOST now, and list them.

    Values that were read in the last ten seconds are not read again. The command waits for one
    minute at most.

    For example: keyturn drift read web1
    """
    count = service.post(build_path("hosts", host, "drift"))["keys"]
    if count:
        click.echo(f"{host}: reading {format_count(count, 'value')} …", err=True)
    found = _wait_for_readings(service, host)
    _print_keys(found)
    if unread := [key["name"] for key in found if key["reading_requested_at"]]:
        exit_with_error(
            f"{host}: not read within a minute: {', '.join(unread)}. Keyturn goes on: see keyturn "
            f"drift list {host} later, and whether a run holds the host",
            WAITING,
        )


def _wait_for_readings(service: ServiceClient, host: str) -> Sequence[Mapping[str, Any]]:
    """Return the watched values of a host once they are read, or after a minute."""
    deadline = time.monotonic() + _READ_SECONDS
    while True:
        found = service.get("/drift", host=host)["keys"]
        is_read = not any(key["reading_requested_at"] for key in found)
        if is_read or time.monotonic() > deadline:
            return found
        time.sleep(_POLL_SECONDS)


@drift_commands.command("restore")
@_NUMBER_ARGUMENT
@reason_option()
@ticket_option
@SHORT_WAIT_OPTION
@pass_service
def restore_value(
    service: ServiceClient, *, number: int, seconds: float | None, **terms: str
) -> None:
    """Request again what set value NUMBER: a new run, with the usual approvals.

    For example: keyturn drift restore 3 --reason "a mistake"
    """
    run = service.create_run(build_path("drift", number, "restore"), terms)
    wait_and_print_run(service, run["id"], wait_seconds=seconds)


@drift_commands.command("adopt")
@_NUMBER_ARGUMENT
@reason_option(required=True)
@pass_service
def adopt_value(service: ServiceClient, *, number: int, reason: str) -> None:
    """Accept value NUMBER as it is on the host. Nothing is sent.

    For example: keyturn drift adopt 3 --reason "the new limit is right"
    """
    key = service.post(build_path("drift", number, "adopt"), {"reason": reason})
    print_result(key, [_format_details(key)])


@drift_commands.command("expect")
@_NUMBER_ARGUMENT
@click.option("--until", required=True, help="When it lapses, such as 3d or 2026-03-01.")
@click.option(
    "--between", "value_range", default="", help="Allowed numbers: LOWEST..HIGHEST. Default: any."
)
@reason_option(required=True)
@pass_service
def expect_value(
    service: ServiceClient, *, number: int, until: str, value_range: str, reason: str
) -> None:
    """Let value NUMBER vary for a while. Nothing is sent.

    For example: keyturn drift expect 3 --until 3d --between 1000..2000 --reason "a load test"
    """
    from bot.model.times import parse_deadline

    body = {
        "until": parse_time_option(until, parse_deadline),
        "range": value_range,
        "reason": reason,
    }
    key = service.post(build_path("drift", number, "expect"), body)
    print_result(key, [_format_details(key)])


def _build_row(key: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(key["id"]),
        key["host"],
        key["name"],
        _STATES[key["state"]],
        format_time(key["since"]),
        key["value"] or key["set_value"],
    )


def _format_details(key: Mapping[str, Any]) -> str:
    since = format_time(key["since"])
    lines = [f"{key['host']}: {key['name']} is {_STATES[key['state']]} since {since}"]
    if key["state"] != "as_set":
        lines.append(f"  on the host: {key['value']}")
    by = "adopted" if key["is_adopted"] else f"set by run {key['run']}"
    lines.append(f"  {by}: {key['set_value']}")
    if key["state"] in {"changed", "missing"}:
        good = format_time(key["last_good_at"], with_seconds=True)
        bad = format_time(key["since"], with_seconds=True)
        lines.append(f"  between {good} and {bad}; what happened on the host then:")
        lines += [f"    {_format_candidate(one)}" for one in key["candidates"]] or ["    nothing"]
        if key["candidates_hidden"]:
            lines.append("    (you may not view what people did on the host)")
    if key["expected_until"]:
        within = f" within {key['expected_range']}" if key["expected_range"] else ""
        lines.append(f"  expected to vary{within} until {format_time(key['expected_until'])}")
    lines.append(f"  last reading {format_time(key['read_at'])}")
    return "\n".join(lines)


def _format_candidate(candidate: Mapping[str, Any]) -> str:
    if candidate["at"] is None:
        return f"could not be read: {candidate['description']}"
    at = format_time(candidate["at"], with_seconds=True)
    who = candidate["account"] or "-"
    return f"{at}  {candidate['kind']:<7}  {who}  {candidate['description']}"
