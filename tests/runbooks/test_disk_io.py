from dataclasses import replace

import pytest
from pydantic import ValidationError

from connectors import iostat
from connectors.iostat import DiskUse
from tests.connectors.storage import recorded
from tests.runbooks.declared import load_check
from tests.scripted_fleet import ScriptedFleet

DiskTraffic = load_check("disk io")

LOOK = DiskTraffic.model_validate({"host": "nas1", "seconds": "3"})
SLOW = DiskUse("sda", 150, 0, 600, 0, 60.0, 0.0, queue=9.0, busy=99.7)


def test_disk_io_lists_the_busiest_disk_first():
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", iostat.query_json(3).command, recorded("iostat-12.6-json"))
    report = LOOK.report(LOOK.read(fleet.run_query))
    assert report.healthy
    assert report.summary.startswith(
        "In 3 s, no disk is saturated; busiest: sdh was busy 49 % of the time"
    )
    assert report.table is not None
    assert list(report.table.rows) == [
        ("sdh", "49 %", "1", "105", "107,865", "1014 KiB", "sequential", "4.7 ms"),
        ("sdc", "2 %", "11", "0", "44", "4 KiB", "random", "1.6 ms"),
    ]


def test_saturated_disk_is_a_finding_with_advice():
    report = LOOK.report([SLOW])
    assert not report.healthy
    assert report.summary.startswith("In 3 s, sda is saturated")
    (finding,) = report.findings
    assert "60 ms each. Its traffic is random (4 KiB a request): add memory for caches" in finding


@pytest.mark.parametrize(("kib", "advice"), [(64, "at the same time"), (512, "to the night")])
def test_advice_for_a_saturated_disk_follows_its_access_pattern(kib: int, advice: str):
    assert advice in LOOK.report([replace(SLOW, read_kib=150.0 * kib)]).findings[0]


def test_busy_disk_with_short_waits_is_noted_and_healthy():
    report = LOOK.report([replace(SLOW, read_await=0.4, queue=1.0)])
    assert report.healthy
    assert "may have capacity left" in report.findings[0]


def test_disk_io_names_several_saturated_disks():
    report = LOOK.report([SLOW, replace(SLOW, device="sdb")])
    assert "sda, sdb are saturated" in report.summary


def test_disk_io_of_idle_disks_is_healthy():
    report = LOOK.report([replace(SLOW, reads=0.0, busy=0.0)])
    assert report.summary == "In 3 s, all disks of nas1 were idle"
    assert report.healthy


@pytest.mark.parametrize(
    "seconds",
    [0, -1, 61, "0", "1;x", "1 2", "", "x", "1\n", "0x5", "1e9", None, [5], "--5", "99999999999"],
)
def test_disk_io_duration_out_of_range_is_refused(seconds: object):
    with pytest.raises(ValidationError):
        DiskTraffic.model_validate({"host": "nas1", "seconds": seconds})
