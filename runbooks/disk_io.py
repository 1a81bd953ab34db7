from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from connectors import iostat
from connectors.command import QueryRunner
from connectors.iostat import DiskUse
from runbooks import Check, Host, Report, Table

_BUSY = 90
_MISSING = "iostat lists no device, as in a container: measure on the host that has the disks"


class DiskTraffic(
    Check[Sequence[DiskUse]],
    words="disk io",
    also_called=("iostat", "slow disk", "latency"),
    example="nas1 10",
    columns=("Device", "Busy", "Reads/s", "Writes/s", "KiB/s", "Request", "Pattern", "Wait"),
):
    """Check whether disks are saturated, how long requests take, and their pattern."""

    host: Host
    seconds: Annotated[int, Field(ge=1, le=60, description="How long to measure, in seconds")] = 5

    def read(self, run_query: QueryRunner) -> Sequence[DiskUse]:
        return iostat.read_disk_use(run_query, self.host, self.seconds)

    def report(self, uses: Sequence[DiskUse]) -> Report:
        working = sorted(
            (use for use in uses if use.request_rate), key=lambda use: use.busy, reverse=True
        )
        if not uses:
            return Report.from_findings(f"{self.host} has no disk that iostat lists", [_MISSING])
        if not working:
            return Report(f"In {self.seconds} s, all disks of {self.host} were idle")
        saturated = [use for use in working if use.is_saturated]
        return Report(
            f"In {self.seconds} s, {_format_verdict(saturated)}; busiest: {working[0]}",
            healthy=not saturated,
            findings=[
                _format_finding(use) for use in working if use.busy >= _BUSY or use.is_saturated
            ],
            table=Table(
                self.columns,
                [_format_row(use) for use in working],
            ),
        )


def _format_verdict(saturated: Sequence[DiskUse]) -> str:
    if not saturated:
        return "no disk is saturated"
    names = ", ".join(use.device for use in saturated)
    return f"{names} {'is' if len(saturated) == 1 else 'are'} saturated"


def _format_finding(use: DiskUse) -> str:
    if not use.is_saturated:
        return (
            f"{use.device} is busy {use.busy:.0f} % of the time, but its requests take only "
            f"{use.average_wait:.1f} ms: a disk with parallel requests may have capacity left"
        )
    advice = {
        "random": "add memory for caches, use faster disks, or send fewer small requests",
        "sequential": "add disks in parallel, or move large copies and backups to the night",
        "mixed": "find out which programs read and write at the same time",
    }[use.pattern]
    return (
        f"{use.device} is saturated: busy {use.busy:.0f} % of the time, {use.queue:.1f} requests "
        f"in progress, {use.average_wait:.0f} ms each. Its traffic is {use.pattern} "
        f"({use.request_kib:.0f} KiB a request): {advice}"
    )


def _format_row(use: DiskUse) -> tuple[str, ...]:
    return (
        use.device,
        f"{use.busy:.0f} %",
        f"{use.reads:,.0f}",
        f"{use.writes:,.0f}",
        f"{use.read_kib + use.written_kib:,.0f}",
        f"{use.request_kib:.0f} KiB",
        use.pattern,
        f"{use.average_wait:.1f} ms",
    )
