from dataclasses import replace

import pytest

from connectors import conntrack
from connectors.conntrack import Conntrack
from tests.connectors.test_conntrack import IN_USE
from tests.runbooks.declared import load_check
from tests.scripted_fleet import ScriptedFleet

ConntrackCheck = load_check("conntrack check")

CHECK = ConntrackCheck.model_validate({"host": "lb1"})
WELL = Conntrack(10_000, 262_144, 65_536, 2**34, 0, 0)


def test_conntrack_check_of_a_healthy_host_is_one_sentence():
    fleet = ScriptedFleet({("lb1", conntrack.query_conntrack().command): IN_USE})
    assert CHECK.report(CHECK.read(fleet.run_query)).healthy
    report = CHECK.report(WELL)
    assert report.summary == "lb1 tracks 10,000 of at most 262,144 connections (4%)"


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        (replace(WELL, count=209_716), "80% of the limit is used"),
        (replace(WELL, dropped=1234), "1,234 packets of new connections were dropped"),
        (replace(WELL, early_dropped=7), "7 connections were removed early"),
        (replace(WELL, buckets=1024), "only 1,024 buckets"),
    ],
)
def test_conntrack_usage_drops_and_long_chains_are_findings(reading: Conntrack, message: str):
    report = CHECK.report(reading)
    assert not report.healthy
    assert message in report.findings[0]
