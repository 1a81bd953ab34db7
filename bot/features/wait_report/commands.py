"""`keyturn report waiting` and `keyturn policy replay`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from bot.cli.client import ServiceClient, pass_service
from bot.cli.context import CommandEnvironment, exit_on_errors, wants_json
from bot.cli.options import limit_option, pass_environment
from bot.cli.progress import show_progress
from bot.cli.sections import CommandGroup
from bot.cli.terminal import get_zone_name, print_json, print_table

_DIRECTORY_TYPE = click.Path(path_type=Path, exists=True, file_okay=False)


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
@pass_service
def print_wait_report(service: ServiceClient, *, days: int) -> None:
    """Show waiting times for approvals by runbook, area and hour, and suggest self-service."""
    report = service.get("/report/waiting", days=days, zone=get_zone_name())
    if wants_json():
        print_json(report)
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
    for one in report["self_service"]:
        click.echo(
            f"\n{one['runbook']} in {one['area']} could be self-service: "
            f"{one['requested']} requests, all approved and successful"
        )


@click.command("replay")
@click.argument("directory", type=_DIRECTORY_TYPE, metavar="NEW_DIR")
@click.option(
    "--since", default="90d", show_default=True, help="Start: 90d, last month, 2026-03-01."
)
@limit_option(20, minimum=0, help_text="Runs to list of each outcome; --json lists all.")
@pass_environment
def replay_history(
    environment: CommandEnvironment, *, directory: Path, since: str, limit: int
) -> None:
    """Evaluate past requests by the policy in NEW_DIR, and show what would differ.

    Read-only, also while the service runs. For example, before you merge a policy change:
    keyturn policy replay ./policy --since 30d
    """
    from bot.db import history
    from bot.features.wait_report import replay_format
    from bot.features.wait_report.replay import replay_requests as run_through
    from bot.model import times
    from bot.model.progress import iterate_with_progress
    from bot.policy.loader import load_policy

    with exit_on_errors():
        proposed = load_policy(directory)
    with environment.open_database() as database, database.reading() as tx:
        start = times.parse_past_time(since, now=tx.now)
        stages = show_progress()
        with stages("replaying", lambda: history.count_past_requests(tx, start)) as advance:
            found = run_through(
                proposed, iterate_with_progress(history.list_past_requests(tx, start), advance)
            )
    if wants_json():
        print_json(replay_format.replay_to_data(found), indent=2)
    else:
        base_url = environment.base_url
        with exit_on_errors():
            click.echo(
                replay_format.format_replay(found, since=start, limit=limit, base_url=base_url)
            )


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
    print_table(waits, headings, rows, empty_message="")


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
