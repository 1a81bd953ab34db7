"""`keyturn hosts` and `locks`: the hosts as they were met last, and what holds them."""

from collections.abc import Mapping
from typing import Any

import click

from bot.cli.client import Service, as_json, at_service, moment, path_of, print_result


@click.command("hosts")
@click.argument("name", default="")
@click.option("--tag", help="Only those with this tag.")
@click.option("--area", help="Only those of this area.")
@click.option("--reach", help="Only those met so: answers, 'not reached', 'shows another key', …")
@as_json
@at_service
def hosts(reached: Service, *, name: str, as_json: bool, **wanted: Any) -> None:
    """List the hosts, or tell about NAME: how it was met last, its key, its lock.

    Nothing is asked of any host for it.
    """
    if name:
        host = reached.get(path_of("hosts", name))
        print_result(host, [_in_full(host)], as_json=as_json)
        return
    found = reached.get("/hosts", **wanted)["hosts"]
    print_result(
        found, [_line(host) for host in found], as_json=as_json, empty="there is no such host"
    )


@click.command("locks")
@as_json
@at_service
def locks(reached: Service, *, as_json: bool) -> None:
    """List the hosts that a change holds: which, since when, and who waits."""
    found = reached.get("/locks")["locks"]
    print_result(found, [_held(one) for one in found], as_json=as_json, empty="no host is held")


COMMANDS = (hosts, locks)


def _held(one: Mapping[str, Any]) -> str:
    waiting = ", ".join(f"run {each['run']} of {each['asked_by']}" for each in one["waiting"])
    held = f"run {one['run']} of {one['asked_by']} since {moment(one['since'])}"
    return f"{one['host']}: {held}; waiting: {waiting or 'nobody'}"


def _line(host: Mapping[str, Any]) -> str:
    met = moment(host["met_at"]) if host["met_at"] else "-"
    lock = host["locked_by"]
    held = f"held by run {lock['run']}" if lock else "frozen" if host["frozen"] else "free"
    return f"{host['name']:<20} {host['area']:<10} {host['reach']:<18} {met:<17} {held}"


def _in_full(host: Mapping[str, Any]) -> str:
    owners = ", ".join(host["owners"]) or "nobody"
    lines = [f"{host['name']}: {host['area_title']}, owners: {owners}"]
    met = f", last met {moment(host['met_at'])}" if host["met_at"] else ""
    lines.append(f"  {host['reach']}{met}")
    lines += [f"  {host['trouble']}"] if host["trouble"] else []
    lines.append(f"  {host['key']}: {host['fingerprint']}")
    lines += [
        f"  {login['user']} {login['purpose']}, by {login['by']}" for login in host["logins"]
    ]
    lines += [f"  {host['frozen']}"] if host["frozen"] else []
    lock = host["locked_by"]
    if lock:
        lines.append(f"  held by run {lock['run']} since {moment(lock['since'])}")
    lines += [f"  waiting: run {each['run']}, {each['title']}" for each in host["waiting"]]
    return "\n".join(lines)
