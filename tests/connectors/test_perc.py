"""RAID controllers. The answers follow the JSON of perccli 7.1910; no such controller is here."""

from pathlib import Path

import pytest

from connectors import perc
from connectors.errors import ParseError

ANSWERS = Path(__file__).parent / "answers" / "perc"
DEGRADED = (ANSWERS / "degraded.json").read_text()
FOR_ROOT = (perc.query_controllers(),)


def test_perccli_arrays_disks_and_battery_are_parsed_by_their_names():
    (controller,) = perc.parse_controllers(DEGRADED)
    assert controller.model == "PERC H730P Mini"
    assert [(each.name, each.kind, each.state) for each in controller.arrays] == [
        ("c0/v0", "RAID1", "Optl"),
        ("c0/v1", "RAID5", "Dgrd"),
    ]
    assert [(each.name, each.state) for each in controller.disks][2:] == [
        ("c0/e252/s2", "Failed"),
        ("c0/s3", "Rbld"),
    ]
    assert controller.disks[0].kind == "ST1000NM0011"
    assert [(each.kind, each.state) for each in controller.batteries] == [("CVPM02", "Degraded")]


def test_host_without_a_raid_controller_is_parsed_as_empty():
    assert perc.parse_controllers((ANSWERS / "none.json").read_text()) == ()


@pytest.mark.parametrize(
    "answer",
    [
        *("", "[]", "{}", "Controller = 0", '{"Controllers": 7}'),
    ],
)
def test_invalid_perccli_answer_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        perc.parse_controllers(answer)


def test_controller_that_failed_is_an_odd_row():
    found = perc.parse_controllers(DEGRADED.replace('"Success"', '"Failure"'))
    assert found == ()
    assert found.odd[0].reason.startswith("the RAID program failed")


def test_odd_disk_of_a_controller_does_not_hide_the_others():
    found = perc.parse_controllers(DEGRADED.replace('"EID:Slt": "252:2"', '"Slot": "252:2"'))
    (controller,) = found
    assert [each.name for each in controller.disks] == ["c0/e252/s0", "c0/e252/s1", "c0/s3"]
    assert [odd.text[:17] for odd in found.odd] == ['{"Slot": "252:2",']
