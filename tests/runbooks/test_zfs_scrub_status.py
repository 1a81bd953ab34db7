import pytest
from pydantic import ValidationError

from connectors.errors import CommandError
from runbooks import Report
from runbooks.zfs_scrub_status import ScrubStatus
from tests.runbooks.nas import HOSTILE_POOLS, build_nas_fleet

STATUS = ScrubStatus.model_validate({"host": "nas1", "pool": "tank"})


def report_of(name: str) -> Report:
    return STATUS.report(STATUS.read(build_nas_fleet(name).run_query))


@pytest.mark.parametrize(
    ("name", "summary"),
    [
        (
            "2.1-running",
            "tank: scrub running, 30.3 % done, 17.4 MiB/s, 16 s left, repaired 0 B",
        ),
        (
            "2.1-paused",
            "tank: scrub paused since 21 Nov 2026 08:08 host time at 91.7 % done, repaired 0 B",
        ),
        (
            "2.1-finished",
            "tank: scrub done on 21 Nov 2026 08:08 host time, in 2 s, repaired 0 B, 0 errors",
        ),
        ("2.1-canceled-spare", "tank: scrub stopped on 21 Nov 2026 08:14 host time"),
        ("2.1-never", "tank: never scrubbed"),
        ("fuse-never", "tank: never scrubbed since it was imported"),
        (
            "fuse-running",
            "tank: scrub running, 25.1 % done, less than a minute left, repaired 0 B",
        ),
        (
            "2.1-resilvering",
            "tank: resilver running, 34.5 % done, 17.3 MiB/s, 15 s left, resilvered 29 MiB",
        ),
    ],
)
def test_scrub_status_summarises_the_last_scrub(name: str, summary: str):
    assert report_of(name).summary == summary


@pytest.mark.parametrize("name", ["2.1-running", "2.1-finished", "2.1-paused", "fuse-running"])
def test_scrub_without_errors_has_no_findings(name: str):
    report = report_of(name)
    assert report.healthy
    assert report.findings == []


def test_scrub_status_names_damaged_files_and_disks():
    report = report_of("2.1-lost")
    assert not report.healthy
    assert "tank has lost data in 2 places: tank:<0x0>, /tank/more: restore it from a backup" in (
        report.findings
    )
    assert report.findings[-1] == "The scrub ended with 6 errors that it could not repair"
    assert report.table is not None
    assert report.table.rows[2] == ("sdd", "REMOVED", "0", "0", "0", "")


def test_scrub_status_marks_spares():
    table = report_of("2.1-spare-in-use").table
    assert table is not None
    assert table.rows[-1] == ("sde", "INUSE", "0", "0", "0", "spares, currently in use")


def test_pool_that_was_never_scrubbed_is_a_finding():
    assert report_of("2.1-never").findings == [
        "Scrub it monthly to find damage while it can be repaired"
    ]


def test_scrub_status_reports_a_missing_pool_with_the_pools():
    absent = ScrubStatus.model_validate({"host": "nas1", "pool": "dozer"})
    with pytest.raises(CommandError, match="no pool dozer; its pools: tank"):
        absent.read(build_nas_fleet("2.1-finished").run_query)


@pytest.mark.parametrize("pool", HOSTILE_POOLS)
def test_scrub_status_refuses_an_invalid_pool_before_any_query(pool: object):
    with pytest.raises(ValidationError):
        ScrubStatus.model_validate({"host": "nas1", "pool": pool})
