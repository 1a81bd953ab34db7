from dataclasses import replace

import pytest

from connectors import rate_limit
from connectors.command import Answer
from connectors.rate_limit import LimitCounts, RateLimits, RateZone, ZoneUse
from tests.connectors.test_rate_limit import CONFIGURATION, COUNTED
from tests.runbooks.declared import load_check
from tests.scripted_fleet import ScriptedFleet

RatelimitCheck = load_check("ratelimit check")
CHECK = RatelimitCheck.model_validate({"host": "web1"})
WELL = RateLimits(
    (RateZone("one", "$binary_remote_addr", "10m", "1r/s"),),
    (ZoneUse("one", 3, nodelay=True),),
    status=429,
    dry_run=False,
)
COUNTS = LimitCounts({"one": 1234}, {})
NO_LOG = LimitCounts({}, {}, is_logged=False)


def test_rate_limits_are_listed_with_their_counts():
    report = CHECK.report((WELL, COUNTS))
    assert report.healthy
    assert report.summary == (
        "nginx on web1 has 1 rate limit and refused 1,234 requests with 429 in the logs of "
        "the last day"
    )
    assert report.table is not None
    assert report.table.rows[0][4:6] == ("burst 3 nodelay", "1,234")


@pytest.mark.parametrize(
    ("limited", "message"),
    [
        ((replace(WELL, uses=()), COUNTS), "one is defined but not applied"),
        ((replace(WELL, status=503), COUNTS), "limit_req_status 429"),
        ((replace(WELL, dry_run=True), COUNTS), "not refused"),
        (
            (replace(WELL, uses=(ZoneUse("one", 5, nodelay=False),)), COUNTS),
            "use nodelay",
        ),
        ((WELL, NO_LOG), "set nginx.error_logs"),
    ],
)
def test_rate_limit_that_is_unused_or_a_dry_run_is_a_finding(
    limited: tuple[RateLimits, LimitCounts], message: str
):
    report = CHECK.report(limited)
    assert not report.healthy
    assert len(report.findings) == 1
    assert message in report.findings[0]


def test_rate_limit_counts_without_an_error_log_are_unknown():
    table = CHECK.report((WELL, NO_LOG)).table
    assert table is not None
    assert table.rows[0][5:] == ("unknown", "unknown")


def test_ratelimit_check_reports_a_host_without_limits():
    report = CHECK.report((RateLimits((), (), status=503, dry_run=False), NO_LOG))
    assert report.summary == "nginx on web1 has no request limits"
    assert not report.healthy


def test_ratelimit_check_reads_configuration_and_error_log():
    fleet = ScriptedFleet(
        {
            ("web1", rate_limit.query_limits().command): CONFIGURATION,
            ("web1", rate_limit.query_counts().command): COUNTED,
        }
    )
    report = CHECK.report(CHECK.read(fleet.run_query))
    assert "the zone spare is defined but not applied" in report.findings


def test_rate_limits_are_listed_when_the_logs_cannot_be_read():
    fleet = ScriptedFleet(
        {
            ("web1", rate_limit.query_limits().command): CONFIGURATION,
            ("web1", rate_limit.query_counts().command): Answer(1, "", "Permission denied"),
        }
    )
    report = CHECK.report(CHECK.read(fleet.run_query))
    assert report.summary.endswith(", and it is unknown how many requests it refused")
    assert report.findings[0].startswith("nginx's error logs could not be read: ")
    assert not any("no error log was written" in finding for finding in report.findings)
    assert report.table is not None
    assert {row[5] for row in report.table.rows} == {"unknown"}
