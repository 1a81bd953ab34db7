"""`keyturn report waiting`: how long people wait for approvals, and what could be lifted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from bot.cli.client import ServiceClient, json_option, pass_service, print_result
from bot.cli.sections import CommandGroup


@click.group("report", cls=CommandGroup)
def report_commands() -> None:
    """Tell how Keyturn is used."""


@report_commands.command("waiting")
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=91,
    show_default=True,
    help="How far back to look.",
)
@json_option
@pass_service
def print_wait_report(service: ServiceClient, *, days: int, as_json: bool) -> None:
    """Tell how long people wait, by runbook, area and hour, and what could be self-service."""
    told = service.get("/report/waiting", days=days)
    print_result(told, list(_format_report(told)), as_json=as_json)


def _format_report(report: Mapping[str, Any]) -> Iterator[str]:
    total = report["total"]
    if not total["requested"]:
        yield f"nobody waited for an approval in the last {report['days']} days"
        return
    yield f"{total['requested']} requests of the last {report['days']} days waited for approvals"
    hours = [{**line, "name": f"{line['name']}:00 UTC"} for line in report["by_hour"]]
    for group in (
        report["by_runbook"],
        report["by_area"],
        [one for one in hours if one["requested"]],
    ):
        yield ""
        yield from _format_table(group)
    for lift in report["self_service"]:
        yield ""
        yield f"{lift['runbook']} in {lift['area']} could be self-service: {lift['replayed']}"
        yield from (f"    {line}" for line in lift["rule"].splitlines())


def _format_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    width = max(len(line["name"]) for line in rows)
    yield f"{'':<{width}}  {'half':>8}  {'9 of 10':>8}  {'asked':>6}  {'approved':>8}"
    for line in rows:
        rate = "-" if line["approval_rate"] is None else f"{line['approval_rate']:.0%}"
        half, nine = (
            _format_duration(line["median_wait"]),
            _format_duration(line["ninth_decile_wait"]),
        )
        counts = f"{line['requested']:>6}  {rate:>8}"
        yield f"{line['name']:<{width}}  {half:>8}  {nine:>8}  {counts}"


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
