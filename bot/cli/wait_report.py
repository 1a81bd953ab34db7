"""`keyturn report waiting`: how long people wait for approvals, and what could be lifted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from bot.cli.client import Service, as_json, at_service, print_result
from bot.cli.sections import Family


@click.group("report", cls=Family)
def report() -> None:
    """Tell how Keyturn is used."""


@report.command("waiting")
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=91,
    show_default=True,
    help="How far back to look.",
)
@as_json
@at_service
def waiting(reached: Service, *, days: int, as_json: bool) -> None:
    """Tell how long people wait, by runbook, area and hour, and what could be self-service."""
    told = reached.get("/report/waiting", days=days)
    print_result(told, list(_lines(told)), as_json=as_json)


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    total = told["total"]
    if not total["asked"]:
        yield f"nobody waited for an approval in the last {told['days']} days"
        return
    yield f"{total['asked']} requests of the last {told['days']} days waited for approvals"
    hours = [{**line, "name": f"{line['name']}:00 UTC"} for line in told["by_hour"]]
    for group in (told["by_runbook"], told["by_area"], [one for one in hours if one["asked"]]):
        yield ""
        yield from _table(group)
    for lift in told["self_service"]:
        yield ""
        yield f"{lift['runbook']} in {lift['area']} could be self-service: {lift['replayed']}"
        yield from (f"    {line}" for line in lift["rule"].splitlines())


def _table(group: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    width = max(len(line["name"]) for line in group)
    yield f"{'':<{width}}  {'half':>8}  {'9 of 10':>8}  {'asked':>6}  {'approved':>8}"
    for line in group:
        rate = "-" if line["approval_rate"] is None else f"{line['approval_rate']:.0%}"
        half, nine = _long(line["median_wait"]), _long(line["ninth_decile_wait"])
        counts = f"{line['asked']:>6}  {rate:>8}"
        yield f"{line['name']:<{width}}  {half:>8}  {nine:>8}  {counts}"


def _long(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
