"""Disks by SMART. The answers follow the JSON of smartmontools 7.3; no such disk is here."""

import json
from pathlib import Path

import pytest

from connectors import smart
from connectors.errors import ParseError
from connectors.smart import DiskAddress

ANSWERS = Path(__file__).parent / "answers" / "smart"
SDA, BEHIND = DiskAddress("/dev/sda", "sat"), DiskAddress("/dev/bus/0", "megaraid,4")
FOR_ROOT = (smart.query_disks(), smart.query_health(SDA), smart.query_health(BEHIND))


def parse_recorded(name: str) -> smart.DiskHealth:
    return smart.parse_health((ANSWERS / f"{name}.json").read_text(), SDA)


def test_smart_scan_lists_disks_behind_a_raid_controller():
    assert smart.parse_disks((ANSWERS / "scan.json").read_text()) == [SDA, BEHIND]
    assert str(BEHIND) == "/dev/bus/0 (megaraid,4)"


def test_healthy_disk_has_no_smart_problems():
    disk = parse_recorded("ata")
    assert (disk.state, disk.model, disk.celsius) == ("healthy", "ST4000NM0035-1V4107", 35)


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        (
            "ata-failing",
            [
                *("it predicts its own failure", "1,912 reallocated sectors"),
                *("8 unreadable sectors", "Spin_Retry_Count is below its threshold"),
            ],
        ),
        (
            "nvme-worn",
            [
                *("it has the critical warning 0x04", "7 errors of its memory"),
                "104 % of its lifetime is used",
                "only 3 % of its spare blocks are left",
            ],
        ),
        ("sas-defects", ["2 defects have grown", "3 errors of read were not corrected"]),
    ],
)
def test_smart_problems_are_listed_for_each_kind_of_disk(name: str, problems: list[str]):
    assert parse_recorded(name).problems == problems
    assert parse_recorded(name).state == "failing"


def test_disk_without_readable_smart_data_is_unknown():
    disk = parse_recorded("unreadable")
    assert (disk.state, disk.problems) == ("unknown", ())
    assert "failed: No such device" in disk.error
    silent = json.dumps({"smartctl": {"exit_status": 4}})
    assert smart.parse_health(silent, SDA).error == "it has no SMART"


@pytest.mark.parametrize("answer", ["", "smartctl 7.3", "[]", "{}"])
def test_invalid_smartctl_json_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        smart.parse_health(answer, SDA)
    with pytest.raises(ParseError):
        smart.parse_disks(answer)
