"""`keyturn hosts`, `locks` and `rebuild`: hosts, their locks, and what Keyturn has set on them."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from bot.cli.client import (
    ServiceClient,
    build_path,
    format_approved_by,
    pass_service,
)
from bot.cli.completion import complete
from bot.cli.options import option_with_aliases, reason_option, ticket_option
from bot.cli.runs import PLAN_OPTION, SHORT_WAIT_OPTION, wait_and_print_run
from bot.cli.terminal import format_time, print_result, print_table

_SCRIPT_HEAD = """\
#!/bin/sh
# To read, not to run: it ends before its first command. What it sends was right for {host} when
# each run started. `keyturn rebuild {host} --request NEW_HOST` plans the same for another host.
echo 'Read this script; do not run it.' >&2
exit 1"""


@click.command("hosts")
@click.argument("name", default="", shell_complete=complete("host"))
@click.option("--tag", help="Only hosts with this tag.", shell_complete=complete("bare tag"))
@click.option("--area", help="Only hosts of this area.", shell_complete=complete("area"))
@option_with_aliases(
    "--status",
    "--reach",
    "status",
    help="Only hosts with this status: reachable, unreachable, 'host key mismatch', …",
)
@pass_service
def show_hosts(service: ServiceClient, *, name: str, **filters: Any) -> None:
    """List hosts, or show NAME with its status, host key, logins and lock.

    The status is that of the last contact; no host is contacted for this command.

    For example: keyturn hosts --tag haproxy --status unreachable
    """
    if name:
        host = service.get(build_path("hosts", name))
        print_result(host, [_format_host_details(host)])
        return
    found = service.get("/hosts", **filters)["hosts"]
    print_table(
        found,
        ("HOST", "AREA", "STATUS", "LAST CONTACT", "LOCK"),
        [_build_host_row(host) for host in found],
        empty_message="No matching hosts.",
    )


@click.command("locks")
@pass_service
def list_locks(service: ServiceClient) -> None:
    """List locked hosts and the runs that wait for them."""
    found = service.get("/locks")["locks"]
    print_result(found, [_format_lock(one) for one in found], empty_message="No locked hosts.")


def _format_lock(lock: Mapping[str, Any]) -> str:
    queue = ", ".join(f"run {run['run']} of {run['requested_by']}" for run in lock["queue"])
    holder = f"run {lock['run']} of {lock['requested_by']} since {format_time(lock['since'])}"
    return f"{lock['host']}: locked by {holder}; queue: {queue or 'empty'}"


def _build_host_row(host: Mapping[str, Any]) -> tuple[str, ...]:
    contact = format_time(host["tried_at"]) if host["tried_at"] else "-"
    lock = host["locked_by"]
    state = f"locked by run {lock['run']}" if lock else "frozen" if host["frozen"] else "free"
    return (host["name"], host["area"], host["status"], contact, state)


def _format_host_details(host: Mapping[str, Any]) -> str:
    owners = ", ".join(host["owners"]) or "none"
    lines = [f"{host['name']}: {host['area_title']}, owners: {owners}"]
    contact = f", last contact {format_time(host['tried_at'])}" if host["tried_at"] else ""
    lines.append(f"  {host['status']}{contact}")
    lines += [f"  {host['error']}"] if host["error"] else []
    lines.append(f"  {host['key']}: {host['fingerprint']}")
    lines += [
        f"  {login['user']} {login['purpose']}, by {login['authentication']}"
        for login in host["logins"]
    ]
    lines += [f"  {host['frozen']}"] if host["frozen"] else []
    lock = host["locked_by"]
    if lock:
        lines.append(f"  locked by run {lock['run']} since {format_time(lock['since'])}")
    lines += [f"  queued: run {run['run']}, {run['title']}" for run in host["queue"]]
    return "\n".join(lines)


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


COMMANDS = (show_hosts, list_locks, rebuild_host)
