"""`keyturn hosts` and `locks`: hosts and their locks."""

from collections.abc import Mapping
from typing import Any

import click

from bot.cli.client import (
    ServiceClient,
    build_path,
    pass_service,
)
from bot.cli.completion import complete
from bot.cli.options import option_with_aliases
from bot.cli.terminal import format_time, print_result, print_table


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
