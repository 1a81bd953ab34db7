"""`keyturn freeze …`: times in which changes are on hold."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from bot.cli.client import ServiceClient, build_path, parse_time_option, pass_service
from bot.cli.completion import complete
from bot.cli.context import RecordNumber
from bot.cli.options import reason_option
from bot.cli.sections import CommandGroup
from bot.cli.terminal import format_time, print_table


@click.group("freeze", cls=CommandGroup)
def freeze_commands() -> None:
    """Show freezes, times in which changes are on hold; order one, and end it."""


@freeze_commands.command("list")
@pass_service
def list_freezes(service: ServiceClient) -> None:
    """List active and upcoming freezes."""
    _print_freezes(service.get("/freezes")["freezes"])


@freeze_commands.command("order")
@click.argument("hosts", shell_complete=complete("host"))
@click.option("--until", required=True, help="When it ends, such as 2h or 14:00.")
@reason_option(required=True)
@pass_service
def order_freeze(service: ServiceClient, *, hosts: str, until: str, reason: str) -> None:
    """Hold changes of HOSTS from now on: a name, a pattern, @TAG or an area.

    For example: keyturn freeze order 'web*' --until 14:00 --reason "the fair"
    """
    from bot.model.times import parse_deadline

    body = {"hosts": hosts, "until": parse_time_option(until, parse_deadline), "reason": reason}
    _print_freezes([service.post("/freezes", body)])


@freeze_commands.command("end")
@click.argument("number", type=RecordNumber())
@reason_option()
@pass_service
def end_freeze(service: ServiceClient, *, number: int, reason: str) -> None:
    """End freeze NUMBER, and list those that are left. A person must have ordered it.

    For example: keyturn freeze end 3 --reason "it is over"
    """
    left = service.post(build_path("freezes", number, "end"), {"reason": reason})
    _print_freezes(left["freezes"])


def _print_freezes(found: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            str(one["id"] or "-"),
            "active" if one["active"] else "upcoming",
            format_time(one["begins_at"]),
            format_time(one["ends_at"]),
            one["name"],
            one["sentence"],
        )
        for one in found
    ]
    headings = ("NO.", "STATE", "BEGINS", "ENDS", "NAME", "HOLDS")
    print_table(found, headings, rows, empty_message="No freezes.")
