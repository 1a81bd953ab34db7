import json
from pathlib import Path

import pytest

from connectors import perc, programs, raid, smart
from connectors.command import Answer
from connectors.errors import CommandTimeoutError, ParseError
from connectors.rows import Rows
from runbooks import Report
from runbooks.raid_check import CheckRaid, RaidState
from tests.connectors.storage import recorded
from tests.connectors.test_perc import DEGRADED
from tests.connectors.test_smart import BEHIND, SDA
from tests.scripted_fleet import ScriptedFleet

SMART = Path(__file__).parent.parent / "connectors" / "answers" / "smart"
CHECK = CheckRaid.model_validate({"host": "nas1"})


def script_hardware(
    fleet: ScriptedFleet, *, controllers: str = "", scan: str = "", **disks: Answer | str
) -> None:
    fleet.script("nas1", perc.query_is_installed().command, "yes\n" if controllers else "")
    fleet.script("nas1", perc.query_controllers().command, controllers)
    there = "smartctl\n" if scan else ""
    fleet.script("nas1", programs.query_installed("smartctl").command, there)
    fleet.script("nas1", smart.query_disks().command, scan)
    for name, answer in disks.items():
        disk = {"sda": SDA, "behind": BEHIND}[name]
        fleet.script("nas1", smart.query_health(disk).command, answer)


def report(mdstat: str, *, mismatches: str = "", **details: str) -> Report:
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", raid.query_arrays().command, recorded(f"mdstat-{mdstat}"))
    for name, answer in details.items():
        fleet.script("nas1", raid.query_detail(name).command, recorded(f"mdadm-{answer}"))
    names = [array.name for array in raid.parse_arrays(recorded(f"mdstat-{mdstat}"))]
    fleet.script("nas1", raid.query_mismatches(names).command, mismatches)
    script_hardware(fleet)
    return CHECK.report(CHECK.read(fleet.run_query))


def test_healthy_raid_arrays_have_no_findings():
    seen = report("clean", md0="raid1", md1="raid10-far")
    assert seen.healthy
    assert seen.summary == "nas1 has 2 arrays, all healthy"
    assert seen.table is not None
    assert list(seen.table.rows) == [
        ("md1", "raid10", "far=2 512K", "2 of 2", "active", "-", "-"),
        ("md0", "raid1", "-", "2 of 2", "clean", "-", "-"),
    ]


def test_rebuilding_raid_array_is_a_finding_with_its_progress():
    seen = report("recovery", md0="raid5-recovery")
    assert not seen.healthy
    assert seen.summary == "nas1 has 1 array, md0 degraded"
    (finding,) = seen.findings
    assert finding == (
        "md0 is degraded: 2 of 3 members work. "
        "It is rebuilding: recovery at 0.7 %, about 4 min left"
    )


def test_degraded_raid_array_that_is_only_checked_is_not_rebuilding():
    """Linux checks the members that are left: one of RAID 6, whose data is still redundant."""
    array = raid.RaidArray(
        "md0", True, "raid6", member_count=6, working_count=5,
        progress=raid.ArrayProgress("check", 12.0, 90.0, 200_000),
    )  # fmt: skip
    detail = raid.ArrayDetail("raid6", "clean, degraded, checking", "", "", Rows())
    state = RaidState([array], {"md0": detail}, {})
    (finding,) = CHECK.report(state).findings
    assert finding == "md0 is degraded: 5 of 6 members work. It has no spare: add a disk"


def test_degraded_raid_array_is_a_finding_with_its_failed_disks():
    first, second = report("degraded", md0="raid5-degraded").findings
    assert first == "md0 is degraded: 2 of 3 members work. It has no spare: add a disk"
    assert second == "md0: /dev/sda, /dev/sdf failed; remove and replace it"


def test_raid_mismatches_are_a_finding():
    seen = report(
        "check", mismatches=recorded("mismatches"), md0="raid5-degraded", md1="raid1-checking"
    )
    assert seen.findings[0].startswith("md1: 8,192 sectors differed in the last check (swap")
    assert seen.table is not None
    assert seen.table.rows[0][-2:] == ("check at 1.7 %, about 3 min left", "8,192")


def test_read_only_and_pending_raid_arrays_are_findings():
    seen = report("read-only", md4="raid1-pending", md3="raid1", md2="raid0")
    assert [finding.split(":")[0] for finding in seen.findings] == [
        "md4 waits for its resync",
        "md4 is read-only until it is first written to or set to read-write",
        "md3 is read-only until it is first written to or set to read-write",
    ]
    assert seen.table is not None
    assert seen.table.rows[2][:4] == ("md2", "raid0", "512K", "-")


def test_inactive_raid_array_is_a_finding():
    seen = report("inactive", md4="raid1-pending", md2="raid0")
    assert seen.summary == "nas1 has 3 arrays, md3 degraded"
    assert seen.findings[0].startswith("md3 is not active")


def test_raid_check_reports_a_host_without_arrays():
    assert report("none").summary == "nas1 has no RAID array"
    assert report("none").table is None


def test_raid_check_includes_raid_controllers_and_smart():
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", raid.query_arrays().command, recorded("mdstat-none"))
    script_hardware(
        fleet,
        controllers=DEGRADED,
        scan=(SMART / "scan.json").read_text(),
        sda=Answer(24, (SMART / "ata-failing.json").read_text()),
        behind=Answer(2, (SMART / "unreadable.json").read_text()),
    )
    seen = CHECK.report(CHECK.read(fleet.run_query))
    assert seen.summary == (
        "nas1 has 2 arrays, c0/v1 degraded; 2 disks, /dev/sda failing, "
        "/dev/bus/0 (megaraid,4) not read"
    )
    assert [finding.partition(":")[0] for finding in seen.findings] == [
        "c0/v1 (RAID5, 1.818 TB) is Dgrd",
        "c0/e252/s2 (ST1000NM0011, 931.0 GB) is Failed",
        "c0/s3 (ST1000NM0011, 931.0 GB) is Rbld",
        "c0/battery (CVPM02) is Degraded",
        "/dev/sda (ST4000NM0035-1V4107)",
        "/dev/bus/0 (megaraid,4) was not read, so its health is unknown",
    ]
    assert seen.table
    assert seen.table.rows[-1][:2] == ("/dev/bus/0 (megaraid,4)", "disk")
    assert seen.table.rows[-1][4].startswith("unknown (Smartctl open device")


def test_disk_in_an_unknown_state_is_a_finding_and_no_disk_to_replace():
    """perccli2 prints Conf as the state of a disk in an array, and Online as its status."""
    disk = perc.ControllerPart("c0/e268/s1", "Conf", "KRM6VVUG960G", "893.75 GiB")
    controller = perc.Controller("c0", "PERC H965i", Rows(), Rows([disk]), Rows())
    (finding,) = CHECK.report(RaidState((), {}, {}, controllers=[controller])).findings
    assert finding == (
        "c0/e268/s1 (KRM6VVUG960G, 893.75 GiB) is Conf: Keyturn does not know this state, so look "
        "it up in the controller's own program"
    )


def test_raid_check_reports_arrays_when_smart_cannot_be_read():
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", raid.query_arrays().command, recorded("mdstat-none"))
    script_hardware(fleet, scan="{}")
    fleet.script(
        "nas1", smart.query_disks().command, Answer(1, "", "sudo: a password is required")
    )
    (finding,) = CHECK.report(CHECK.read(fleet.run_query)).findings
    assert finding.startswith("the disks by SMART could not be read: the login may not run this")


def test_broken_raid_array_is_a_finding_beside_the_others():
    seen = report("broken", md1="raid5-degraded", md0="raid1")
    assert seen.summary == "nas1 has 2 arrays, md1, md0 degraded"
    assert seen.findings[0].startswith("md1 is broken: more members failed than raid5 can lose")
    assert "md0 is degraded: 1 of 2 members work. It has no spare: add a disk" in seen.findings


def test_sata_disk_that_smart_does_not_read_is_never_healthy():
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", raid.query_arrays().command, "")
    script_hardware(fleet, scan=(SMART / "scan-linux.json").read_text())
    sata, nvme = smart.parse_disks((SMART / "scan-linux.json").read_text())
    unread = Answer(4, (SMART / "sata-as-scsi.json").read_text())
    fleet.script("nas1", smart.query_health(sata).command, unread)
    fleet.script(
        "nas1", smart.query_health(nvme).command, CommandTimeoutError("no answer in 60 s")
    )
    seen = CHECK.report(CHECK.read(fleet.run_query))
    assert not seen.healthy
    assert seen.summary.endswith("2 disks, none failing, /dev/sda, /dev/nvme0 not read")
    assert seen.findings == [
        "/dev/sda was not read, so its health is unknown: it returns no SMART status",
        "/dev/nvme0 was not read, so its health is unknown: no answer in 60 s",
    ]


def test_volume_of_a_controller_is_no_unread_disk_if_its_disks_are_read():
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", raid.query_arrays().command, "")
    text = "DELL or MegaRaid controller, please try adding '-d megaraid,N'"
    volume = json.dumps({"smartctl": {"messages": [{"string": text}]}})
    script_hardware(
        fleet,
        scan=(SMART / "scan.json").read_text(),
        sda=Answer(2, volume),
        behind=(SMART / "ata.json").read_text(),
    )
    seen = CHECK.report(CHECK.read(fleet.run_query))
    assert seen.summary == "nas1 has arrays that were not read; 1 disk, none failing"
    (finding,) = seen.findings
    assert finding.startswith(
        "the arrays of the RAID controller were not read, only its disks: in"
    )


def test_arrays_of_another_controller_are_not_called_healthy_by_its_disks():
    disk = smart.DiskHealth(smart.DiskAddress("/dev/sg0", "cciss,0"), "EG0600FBDSR")
    seen = CHECK.report(RaidState((), {}, {}, disks=[disk]))
    assert seen.summary == "nas1 has arrays that were not read; 1 disk, none failing"
    (finding,) = seen.findings
    assert finding.startswith("the arrays of the RAID controller (cciss) were not read")


def test_unread_arrays_do_not_hide_the_disks_and_are_a_finding():
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", raid.query_arrays().command, "md0 : active\n")
    script_hardware(fleet)
    with pytest.raises(ParseError, match="the arrays of the kernel could not be read"):
        CHECK.read(fleet.run_query)
    script_hardware(
        fleet,
        scan=(SMART / "scan.json").read_text(),
        sda=(SMART / "ata.json").read_text(),
        behind=(SMART / "ata.json").read_text(),
    )
    seen = CHECK.report(CHECK.read(fleet.run_query))
    assert not seen.healthy
    assert seen.summary == "nas1 has arrays that were not read; 2 disks, none failing"
