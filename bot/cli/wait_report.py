"""`keyturn report waiting`: waiting times for approvals, and self-service suggestions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from bot.cli.client import ServiceClient, pass_service, print_result
from bot.cli.options import json_option
from bot.cli.sections import CommandGroup


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
    report = service.get("/report/waiting", days=days)
    print_result(report, list(_format_report(report)), as_json=as_json)


def _format_report(report: Mapping[str, Any]) -> Iterator[str]:
    total = report["total"]
    if not total["requested"]:
        yield f"No requests waited for approval in the last {report['days']} days."
        return
    yield f"{total['requested']} requests waited for approval in the last {report['days']} days"
    hours = [{**row, "name": f"{row['name']}:00 UTC"} for row in report["by_hour"]]
    for group in (
        report["by_runbook"],
        report["by_area"],
        [row for row in hours if row["requested"]],
    ):
        yield ""
        yield from _format_table(group)
    for suggestion in report["self_service"]:
        yield ""
        place = f"{suggestion['runbook']} in {suggestion['area']}"
        yield f"{place} could be self-service: {suggestion['replay_summary']}"
        yield from (f"    {line}" for line in suggestion["rule"].splitlines())


def _format_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    width = max(len(row["name"]) for row in rows)
    yield f"{'':<{width}}  {'median':>8}  {'90%':>8}  {'count':>6}  {'approved':>8}"
    for row in rows:
        rate = "-" if row["approval_rate"] is None else f"{row['approval_rate']:.0%}"
        median, ninth_decile = (
            _format_duration(row["median_wait"]),
            _format_duration(row["ninth_decile_wait"]),
        )
        counts = f"{row['requested']:>6}  {rate:>8}"
        yield f"{row['name']:<{width}}  {median:>8}  {ninth_decile:>8}  {counts}"


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
