"""`keyturn rebuild`: what Keyturn has set on a host, and the request to set it on a new one."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from bot.cli.client import ServiceClient, build_path, format_approved_by, pass_service
from bot.cli.completion import complete
from bot.cli.options import reason_option, ticket_option
from bot.cli.runs import PLAN_OPTION, SHORT_WAIT_OPTION, wait_and_print_run
from bot.cli.terminal import format_time, print_result

_SCRIPT_HEAD = """\
#!/bin/sh
# To read, not to run: it ends before its first command. What it sends was right for {host} when
# each run started. `keyturn rebuild {host} --request NEW_HOST` plans the same for another host.
echo 'Read this script; do not run it.' >&2
exit 1"""


@click.command("rebuild")
@click.argument("host", shell_complete=complete("host"))
@click.option(
    "--request",
    "new_host",
    metavar="NEW_HOST",
    help="Request these values on NEW_HOST, as one request.",
    shell_complete=complete("host"),
)
@click.option("--script", "as_script", is_flag=True, help="Print a shell script to read.")
@reason_option()
@ticket_option
@PLAN_OPTION
@SHORT_WAIT_OPTION
@pass_service
def rebuild_host(
    service: ServiceClient,
    *,
    host: str,
    new_host: str | None,
    as_script: bool,
    plan_only: bool,
    seconds: float | None,
    **terms: str,
) -> None:
    """Show what Keyturn has set on HOST, and what it does not know.

    For example: keyturn rebuild nas1 --request nas2 --reason "nas1 is broken"
    """
    path = build_path("hosts", host, "rebuild")
    if new_host is None:
        if plan_only or any(terms.values()):
            raise click.UsageError("--reason, --ticket and --plan need --request NEW_HOST")
        rebuild = service.get(path)
        lines = list_script_lines(rebuild) if as_script else list_lines(rebuild)
        print_result(rebuild, [*lines])
        return
    body = {"new_host": new_host, "plan_only": plan_only, **terms}
    run = service.create_run(path, body)
    wait_and_print_run(service, run["id"], wait_seconds=seconds)


def list_lines(rebuild: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for people. rebuild: as the API returns it."""
    yield f"{rebuild['host']}: what Keyturn does not know"
    for one in rebuild["unknown"]:
        yield f"  {one}"
    yield "Values, in the order in which they were set"
    for value in rebuild["values"]:
        yield f"  {value['request']}"
        yield f"    {_describe_run(value)}"
    if not rebuild["values"]:
        yield "  none"
    if rebuild["adopted"]:
        yield "Adopted from outside, and not set again"
    for value in rebuild["adopted"]:
        at = format_time(value["adopted_at"])
        yield f"  {value['key']}: {value['value']}"
        yield f"    adopted by {value['adopted_by']} {at}: {value['reason']}"
    if rebuild["not_repeated"]:
        yield "Not repeated, because it sets no lasting value"
    for act in rebuild["not_repeated"]:
        times = f", {act['count']} times" if act["count"] > 1 else ""
        kind = ", irreversible" if act["irreversible"] else ""
        last = f"last in run {act['last_run']}, {format_time(act['last_at'])}"
        yield f"  {act['request']}: {last}{times}{kind}"


def _describe_run(value: Mapping[str, Any]) -> str:
    reason = f", “{value['reason']}”" if value["reason"] else ""
    approved = format_approved_by(value)
    at = format_time(value["set_at"])
    return f"run {value['run']}, {at}, by {value['requested_by']}{reason}{approved}"


def list_script_lines(rebuild: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a script to read, which ends before its first command."""
    yield _SCRIPT_HEAD.format(host=rebuild["host"])
    yield "# What Keyturn does not know:"
    for one in rebuild["unknown"]:
        yield _comment(f"  {one}")
    for value in rebuild["values"]:
        yield ""
        yield _comment(value["request"])
        yield _comment(_describe_run(value))
        yield from value["commands"]
    for value in rebuild["adopted"]:
        yield _comment(f"Adopted from outside, and not set: {value['key']}: {value['value']}")
    for act in rebuild["not_repeated"]:
        yield _comment(f"Not repeated: {act['request']}")


def _comment(text: str) -> str:
    """Return a comment on one line: what follows a line break would be a command."""
    return f"# {' '.join(text.splitlines())}"
