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
    assert smart.parse_disks((ANSWERS / "scan.json").read_text()) == (SDA, BEHIND)
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
        (
            "sas-defects",
            [
                *("2 grown defects", "10 unreadable sectors"),
                "3 uncorrected errors of read",
            ],
        ),
    ],
)
def test_smart_problems_are_listed_for_each_kind_of_disk(name: str, problems: list[str]):
    assert parse_recorded(name).problems == problems
    assert parse_recorded(name).state == "failing"


def test_only_the_first_number_of_a_raw_value_counts_sectors():
    """Fujitsu and Toshiba keep other counts in the upper bytes, which smartctl prints apart."""
    document = json.loads((ANSWERS / "ata.json").read_text())
    (row,) = [row for row in document["ata_smart_attributes"]["table"] if row["id"] == 5]
    row["raw"] = {"value": 2000 << 32, "string": "0 (2000 0)"}
    assert smart.parse_health(json.dumps(document), SDA).state == "healthy"
    row["raw"] = {"value": 1 + (2000 << 32), "string": "1 (2000 0)"}
    assert smart.parse_health(json.dumps(document), SDA).problems == ["1 reallocated sector"]


def test_disk_without_readable_smart_data_is_unknown():
    disk = parse_recorded("unreadable")
    assert (disk.state, disk.problems) == ("unknown", ())
    assert "failed: No such device" in disk.error
    silent = json.dumps({"smartctl": {"exit_status": 4}})
    assert smart.parse_health(silent, SDA).error == "it returns no SMART status"


def test_guessed_type_of_a_disk_is_not_passed_back():
    """With -d scsi, smartctl does not detect that a disk is SATA, and reads nothing of it."""
    sata, nvme = smart.parse_disks((ANSWERS / "scan-linux.json").read_text())
    assert (sata.type, nvme.type) == ("scsi", "nvme")
    for disk in (sata, nvme, DiskAddress("/dev/nvme1", "nvme,0x1")):
        assert str(smart.query_health(disk).command) == (
            f"smartctl -n standby -iHA -l error -j {disk.name}"
        )
    assert str(smart.query_health(BEHIND).command).endswith("-j -d megaraid,4 /dev/bus/0")


def test_sata_disk_that_was_read_as_scsi_is_unknown():
    disk = parse_recorded("sata-as-scsi")
    assert (disk.state, disk.model) == ("unknown", "ATA EXAMPLE HD8000")


def test_ata_disk_without_attributes_is_not_healthy():
    document = json.loads((ANSWERS / "ata.json").read_text())
    del document["ata_smart_attributes"]
    assert smart.parse_health(json.dumps(document), SDA).problems == [
        "its attributes could not be read"
    ]


def test_odd_attribute_of_a_disk_is_a_problem():
    document = json.loads((ANSWERS / "ata.json").read_text())
    document["ata_smart_attributes"]["table"][1] = {"id": "nine"}
    assert smart.parse_health(json.dumps(document), SDA).problems == [
        """its attribute '{"id": "nine"}' is not understood"""
    ]


def test_volume_of_a_raid_controller_is_told_from_a_disk():
    """The message is that of smartctl for a Linux disk of these makers."""
    text = "/dev/sda failed: DELL or MegaRaid controller, please try adding '-d megaraid,N'"
    answer = {"smartctl": {"messages": [{"string": text, "severity": "error"}]}}
    assert smart.parse_health(json.dumps(answer), SDA).is_volume


@pytest.mark.parametrize("answer", ["", "smartctl 7.3", "[]", "{}"])
def test_invalid_smartctl_json_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        smart.parse_health(answer, SDA)
    with pytest.raises(ParseError):
        smart.parse_disks(answer)
