"""`keyturn hosts` and `locks`: the hosts as they were met last, and what holds them."""

from collections.abc import Mapping
from typing import Any

import click

from bot.cli.client import (
    ServiceClient,
    build_path,
    format_time,
    json_option,
    pass_service,
    print_result,
)


@click.command("hosts")
@click.argument("name", default="")
@click.option("--tag", help="Only those with this tag.")
@click.option("--area", help="Only those of this area.")
@click.option(
    "--reach",
    "reachability",
    help="Only those with this status: reachable, unreachable, 'host key mismatch', …",
)
@json_option
@pass_service
def show_hosts(service: ServiceClient, *, name: str, as_json: bool, **wanted: Any) -> None:
    """List the hosts, or tell about NAME: how it was met last, its key, its lock.

    Nothing is asked of any host for it.
    """
    if name:
        host = service.get(build_path("hosts", name))
        print_result(host, [_format_host_details(host)], as_json=as_json)
        return
    found = service.get("/hosts", **wanted)["hosts"]
    print_result(
        found,
        [_format_host(host) for host in found],
        as_json=as_json,
        empty_message="there is no such host",
    )


@click.command("locks")
@json_option
@pass_service
def list_locks(service: ServiceClient, *, as_json: bool) -> None:
    """List the hosts that a change holds: which, since when, and who waits."""
    found = service.get("/locks")["locks"]
    print_result(
        found,
        [_format_lock(one) for one in found],
        as_json=as_json,
        empty_message="no host is held",
    )


COMMANDS = (show_hosts, list_locks)


def _format_lock(lock: Mapping[str, Any]) -> str:
    waiting = ", ".join(f"run {each['run']} of {each['requested_by']}" for each in lock["waiting"])
    held = f"run {lock['run']} of {lock['requested_by']} since {format_time(lock['since'])}"
    return f"{lock['host']}: {held}; waiting: {waiting or 'nobody'}"


def _format_host(host: Mapping[str, Any]) -> str:
    met = format_time(host["tried_at"]) if host["tried_at"] else "-"
    lock = host["locked_by"]
    held = f"held by run {lock['run']}" if lock else "frozen" if host["frozen"] else "free"
    return f"{host['name']:<20} {host['area']:<10} {host['reachability']:<18} {met:<17} {held}"


def _format_host_details(host: Mapping[str, Any]) -> str:
    owners = ", ".join(host["owners"]) or "nobody"
    lines = [f"{host['name']}: {host['area_title']}, owners: {owners}"]
    met = f", last met {format_time(host['tried_at'])}" if host["tried_at"] else ""
    lines.append(f"  {host['reachability']}{met}")
    lines += [f"  {host['error']}"] if host["error"] else []
    lines.append(f"  {host['key']}: {host['fingerprint']}")
    lines += [
        f"  {login['user']} {login['purpose']}, by {login['by']}" for login in host["logins"]
    ]
    lines += [f"  {host['frozen']}"] if host["frozen"] else []
    lock = host["locked_by"]
    if lock:
        lines.append(f"  held by run {lock['run']} since {format_time(lock['since'])}")
    lines += [f"  waiting: run {each['run']}, {each['title']}" for each in host["waiting"]]
    return "\n".join(lines)
