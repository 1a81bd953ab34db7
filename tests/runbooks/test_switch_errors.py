from datetime import UTC, datetime
from typing import Any

from connectors.command import Query
from connectors.switch_tables import PortErrors
from runbooks import EarlierReport
from runbooks._earlier_report import EarlierReportQuery
from runbooks.switch_errors import ErrorCounts, SwitchErrors
from tests.runbooks.network import build_network_fleet, recorded

CHECK = SwitchErrors.model_validate({"host": "sw1"})


def counted(*errors: int, earlier: EarlierReport | None = None) -> ErrorCounts:
    ports = [PortErrors(f"Gi0/{n}", count, count // 2, 0) for n, count in enumerate(errors)]
    return ErrorCounts(ports, earlier)


def earlier(*errors: int) -> EarlierReport:
    report = CHECK.report(counted(*errors))
    return EarlierReport(datetime(2026, 3, 1, 14, 30, tzinfo=UTC), report)


def test_port_errors_without_an_earlier_report_are_shown_and_healthy():
    report = CHECK.report(counted(0, 1700))
    assert report.summary == "sw1 has counted errors on 1 of 2 ports"
    assert (report.healthy, list(report.findings)) == (True, [])
    assert report.table is not None
    assert list(report.table.rows) == [("Gi0/1", "1,700", "850", "0", "unknown")]


def test_new_port_errors_are_a_finding_also_after_counters_were_cleared():
    report = CHECK.report(counted(3, 1701, 5, earlier=earlier(0, 1700, 9)))
    assert not report.healthy
    assert list(report.findings) == [
        f"{port} has {count} new errors since 2026-03-01 14:30 UTC: check its cable, transceiver "
        "and duplex"
        for port, count in (("Gi0/0", 3), ("Gi0/1", 1), ("Gi0/2", 5))
    ]
    assert CHECK.report(counted(0, 7, earlier=earlier(0, 7))).healthy


def test_port_errors_of_an_hp_have_unknown_checksum_errors():
    hp = build_network_fleet(
        {("sw1", "show interfaces"): recorded("hp-interfaces")}, platforms={"sw1": "hp_procurve"}
    )

    def run_query(host: str, query: Query[Any]) -> Any:
        # Keyturn answers this one on behalf of the host.
        return None if isinstance(query, EarlierReportQuery) else hp.run_query(host, query)

    report = CHECK.report(CHECK.read(run_query))
    assert report.table is not None
    assert list(report.table.rows) == [("4", "6,700", "unknown", "0", "unknown")]
