"""`keyturn report waiting`: waiting times for approvals, and self-service suggestions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from bot.cli.client import ServiceClient, pass_service, print_result
from bot.cli.options import json_option
from bot.cli.sections import CommandGroup
from bot.cli.terminal import get_zone_name, print_table


@click.group("report", cls=CommandGroup)
def report_commands() -> None:
    """Show reports on the use of Keyturn."""


@report_commands.command("waiting")
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=91,
    show_default=True,
    help="Days to include.",
)
@json_option
@pass_service
def print_wait_report(service: ServiceClient, *, days: int, as_json: bool) -> None:
    """Show waiting times for approvals by runbook, area and hour, and suggest self-service."""
    report = service.get("/report/waiting", days=days, zone=get_zone_name())
    if as_json:
        print_result(report, (), as_json=True)
        return
    total = report["total"]["requested"]
    if not total:
        click.echo(f"No requests waited for approval in the last {days} days.")
        return
    click.echo(f"{total} requests waited for approval in the last {days} days")
    hours = [{**row, "name": f"{row['name']}:00"} for row in report["by_hour"]]
    _print_waits("RUNBOOK", report["by_runbook"])
    _print_waits("AREA", report["by_area"])
    _print_waits("HOUR", [row for row in hours if row["requested"]])
    for suggestion in report["self_service"]:
        print_result(None, [*_format_suggestion(suggestion)], as_json=False)


def _print_waits(heading: str, waits: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            row["name"],
            _format_duration(row["median_wait"]),
            _format_duration(row["ninth_decile_wait"]),
            str(row["requested"]),
            "-" if row["approval_rate"] is None else f"{row['approval_rate']:.0%}",
        )
        for row in waits
    ]
    click.echo()
    headings = (heading, "MEDIAN", "90%", "REQUESTS", "APPROVED")
    print_table(waits, headings, rows, as_json=False, empty_message="")


def _format_suggestion(suggestion: Mapping[str, Any]) -> Iterator[str]:
    place = f"{suggestion['runbook']} in {suggestion['area']}"
    yield ""
    yield f"{place} could be self-service: {suggestion['replay_summary']}"
    yield from (f"    {line}" for line in suggestion["rule"].splitlines())


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
