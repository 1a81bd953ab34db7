from dataclasses import replace
from datetime import timedelta

from connectors import zfs
from runbooks import read_report
from runbooks.zfs_pools import ListPools, PoolState
from tests.runbooks.nas import build_nas_fleet, recorded_status

LIST = ListPools.model_validate({"host": "nas1"})


def pools_of(name: str) -> PoolState:
    return LIST.read(build_nas_fleet(name).run_query)


def test_zfs_pools_lists_every_pool_with_its_findings():
    report = LIST.report(pools_of("2.1-several"))
    assert report.summary == "nas1 has 3 pools, 1 with problems"
    assert not report.healthy
    assert report.findings[0].startswith("tank is DEGRADED: sdd is REMOVED")
    assert "tank.a-b_c:1 was never scrubbed: request `zfs scrub start`" in report.findings
    assert report.table is not None
    scan = "scrub done on 21 Nov 2026 08:10 host time, in 2 s, repaired 40 KiB, 6 errors"
    assert report.table.rows[0] == ("tank", "DEGRADED", "1.88G", "408M", "21 %", scan, "2")


def test_healthy_zfs_pool_has_no_findings():
    report = LIST.report(pools_of("2.1-finished"))
    assert report.summary == "nas1 has 1 pool, all healthy"
    assert report.healthy
    assert report.findings == []


def test_zfs_fuse_pool_never_scrubbed_since_import_is_a_finding():
    (finding,) = LIST.report(pools_of("fuse-never")).findings
    assert finding.startswith("tank was never scrubbed since it was imported")


def test_scrub_that_is_too_old_or_was_stopped_is_a_finding():
    pools = pools_of("2.1-finished")
    later = replace(pools.storage, host_time=pools.storage.host_time + timedelta(days=50))
    report = LIST.report(replace(pools, storage=later))
    assert report.findings == ["tank was last scrubbed 50 days ago: scrub it monthly"]
    stopped = LIST.report(pools_of("2.1-canceled-spare"))
    assert stopped.findings == ["The last scrub of tank was stopped early"]


def test_zfs_pool_over_85_percent_full_is_a_finding():
    pools = pools_of("2.1-finished")
    for capacity, problems in ((84, 0), (85, 1), (None, 0)):
        spaces = {"tank": replace(pools.spaces["tank"], capacity=capacity)}
        assert len(LIST.report(replace(pools, spaces=spaces)).findings) == problems


def test_suspended_zfs_pool_is_a_finding():
    findings = LIST.report(pools_of("2.1-suspended")).findings
    assert any(finding.startswith("tank2 is SUSPENDED: sdg is UNAVAIL") for finding in findings)


def test_zfs_pools_reports_no_pools_only_when_zpool_list_and_status_agree():
    fleet = build_nas_fleet("2.1-finished")
    for query in (zfs.query_status(), zfs.query_plain_status()):
        fleet.script("nas1", query.command, "")
    report = LIST.report(LIST.read(fleet.run_query))
    assert report.summary == "nas1 has 1 pool, 1 with problems"
    assert report.findings == [
        "tank is ONLINE, but `zpool status` did not print it in a known format: its disks and "
        "scrubs are unknown"
    ]
    fleet.script("nas1", zfs.query_spaces().command, "")
    assert LIST.report(LIST.read(fleet.run_query)).summary == "nas1 has no ZFS pools"


def test_unknown_scan_of_a_pool_does_not_lose_the_pool_and_is_not_called_never():
    fleet = build_nas_fleet("2.1-finished")
    for query in (zfs.query_status(), zfs.query_plain_status()):
        known = recorded_status("2.1-finished")
        line = next(line for line in known.splitlines() if line.startswith("  scan: "))
        fleet.script("nas1", query.command, known.replace(line, "  scan: polishing since noon"))
    report = read_report(LIST, fleet.run_query, LIST.report)
    assert report.summary.startswith("nas1 has 1 pool, all healthy; 1 row is not understood")
    (finding,) = report.findings
    assert "'tank: scan: polishing since noon': it is no known scan" in finding
    assert report.table is not None
    assert report.table.rows[0][5] == "unknown"


def test_pool_without_a_known_status_does_not_lose_the_others():
    fleet = build_nas_fleet("2.1-several")
    known = recorded_status("2.1-several")
    fleet.script("nas1", zfs.query_status().command, known.replace(" state: ", " stage: ", 1))
    report = read_report(LIST, fleet.run_query, LIST.report)
    assert report.summary.startswith("nas1 has 3 pools, ")
    assert report.table is not None
    assert len(report.table.rows) == 2


def test_pool_without_known_space_is_reported():
    fleet = build_nas_fleet("2.1-finished")
    fleet.script("nas1", zfs.query_spaces().command, "")
    report = LIST.report(LIST.read(fleet.run_query))
    assert report.findings == ["`zpool list` did not print tank: its space is unknown"]
