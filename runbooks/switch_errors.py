from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors import switch, switch_tables
from connectors.command import QueryRunner
from connectors.switch_tables import PortErrors
from runbooks import (
    Check,
    EarlierReport,
    Host,
    Report,
    Table,
    make_host_field,
    query_earlier_report,
)


@dataclass(frozen=True)
class ErrorCounts:
    """The counters of all ports, and the previous report of this check."""

    ports: Sequence[PortErrors]
    earlier: EarlierReport | None = None


class SwitchErrors(
    Check[ErrorCounts],
    words="switch errors",
    example="sw1",
    columns=("Port", "Received errors", "CRC", "Sent errors", "New"),
):
    """Check the error counters of a switch's ports, and how they grew since the last check."""

    host: Host = make_host_field("switch")

    def read(self, run_query: QueryRunner) -> ErrorCounts:
        ports = run_query(self.host, switch_tables.query_errors())
        return ErrorCounts(ports, run_query(self.host, query_earlier_report(self)))

    def report(self, counts: ErrorCounts) -> Report:
        before = _get_totals(counts.earlier)
        new = {each.port: _count_new(each, before) for each in counts.ports}
        if not counts.ports:
            return Report.from_findings(
                f"{self.host} has counted errors on no port", [switch.NO_PORTS]
            )
        growing = [f"{port} has {count:,} new errors" for port, count in new.items() if count]
        since = f" since {counts.earlier.time:%Y-%m-%d %H:%M} UTC" if counts.earlier else ""
        with_errors = [each for each in counts.ports if each.total]
        return Report(
            f"{self.host} has counted errors on {len(with_errors)} of {len(counts.ports)} ports"
            + (f", and {len(growing)} of them have new ones" if growing else ""),
            healthy=not growing,
            findings=[
                f"{finding}{since}: check its cable, transceiver and duplex" for finding in growing
            ],
            table=Table(self.columns, [_format_row(each, new[each.port]) for each in with_errors]),
        )


def _get_totals(earlier: EarlierReport | None) -> Mapping[str, int] | None:
    """Return the errors of each port that the last report listed; None without a report."""
    table = earlier.report.table if earlier else None
    if table is None or tuple(table.columns) != SwitchErrors.columns:
        return None
    return {row[0]: _parse_count(row[1]) + _parse_count(row[3]) for row in table.rows}


def _parse_count(cell: str) -> int:
    return int(cell.replace(",", ""))


def _count_new(port: PortErrors, before: Mapping[str, int] | None) -> int | None:
    """Return the errors since the last report, None without one."""
    if before is None:
        return None
    # Counters that were cleared start from zero.
    earlier = before.get(port.port, 0)
    return port.total - earlier if port.total >= earlier else port.total


def _format_row(port: PortErrors, new: int | None) -> Sequence[str]:
    crc = "unknown" if port.crc is None else f"{port.crc:,}"
    return (
        port.port,
        f"{port.received:,}",
        crc,
        f"{port.sent:,}",
        "unknown" if new is None else f"{new:,}",
    )
