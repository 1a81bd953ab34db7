from dataclasses import replace

import pytest

from connectors import uptime
from connectors.uptime import Uptime
from tests.connectors.test_uptime import PLAIN
from tests.runbooks.declared import load_check
from tests.scripted_fleet import ScriptedFleet

UptimeCheck = load_check("uptime check")

CHECK = UptimeCheck.model_validate({"host": "web1"})
DAY = 86400.0
WELL = Uptime(3 * DAY + 7200, (0.5, 0.4, 0.3), 4, "6.1.0-18-amd64", None)


def test_uptime_check_of_a_healthy_host_is_one_sentence():
    report = CHECK.report(WELL)
    assert report.healthy
    assert report.summary == (
        "web1 has been up for 3 days 2 h, load 0.50 0.40 0.30 on 4 cores, kernel 6.1.0-18-amd64"
    )


def test_uptime_check_ignores_the_load_of_a_host_with_unknown_cores():
    report = CHECK.report(replace(WELL, cores=None, load=(90.0, 90.0, 90.0)))
    assert report.healthy
    assert "load 90.00 90.00 90.00, kernel" in report.summary


@pytest.mark.parametrize(
    ("up", "message"),
    [
        (replace(WELL, seconds=600), "it was rebooted 10 min ago"),
        (replace(WELL, seconds=401 * DAY), "over a year"),
        (replace(WELL, reboot_packages=("libc6",)), "needs a reboot for libc6"),
        (replace(WELL, reboot_packages=()), "it needs a reboot"),
        (replace(WELL, load=(9.0, 9.0, 8.1)), "for 15 minutes (8.10)"),
        (replace(WELL, load=(17.0, 9.0, 1.0)), "the load is above 4 for each core"),
    ],
)
def test_reboots_long_uptime_and_high_load_are_findings(up: Uptime, message: str):
    report = CHECK.report(up)
    assert not report.healthy
    assert message in report.findings[0]


def test_uptime_check_reads_the_host_with_one_query():
    fleet = ScriptedFleet({("web1", uptime.query_uptime().command): PLAIN})
    assert CHECK.read(fleet.run_query).cores == 4
