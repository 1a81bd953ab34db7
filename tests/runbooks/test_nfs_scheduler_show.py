import pytest
from pydantic import ValidationError

from connectors import block_tree, mounts
from connectors.command import Answer
from runbooks import Report, read_report
from runbooks.nfs_scheduler_show import ShowScheduler
from tests.connectors.storage import recorded
from tests.runbooks.file_server import QUEUES, build_file_server_fleet, like_sda, only, queues
from tests.scripted_fleet import ScriptedFleet

SHOW = ShowScheduler.model_validate({"host": "nas1"})


def report(text: str) -> Report:
    return SHOW.report(SHOW.read(build_file_server_fleet({BEHIND_DISKS: text}).run_query))


# A partition has no queue, so it is not asked for one.
BEHIND_DISKS = queues("dm-0", "nvme0n1", "sda", "sdb", "sdc")
HEALTHY = (QUEUES + like_sda("sdb") + like_sda("sdc")).replace(
    "scheduler:[none] mq-deadline", "scheduler:none [mq-deadline]"
)


def test_nfs_exports_are_listed_with_the_disks_behind_them():
    seen = report(QUEUES + like_sda("sdb") + like_sda("sdc"))
    assert seen.summary == "nas1 exports 5 directories from nvme0n1, sda, sdb, sdc"
    assert seen.table is not None
    assert [row[:4] for row in seen.table.rows] == [
        ("/export/projects", "vg0-export (dm-0)", "sda", "none"),
        ("/export/projects", "vg0-export (dm-0)", "sdb", "none"),
        ("/export/with space", "vg0-export (dm-0)", "sda", "none"),
        ("/export/with space", "vg0-export (dm-0)", "sdb", "none"),
        ("/export/fast", "nvme0n1p1", "nvme0n1", "none"),
        ("/export/home/sub", "sdc1", "sdc", "none"),
        ("/srv/onroot", "tm", "-", "-"),
    ]
    assert seen.table.rows[0][4:] == ("none mq-deadline", "-", "128 KiB", "256", "HDD")
    assert seen.table.rows[4][-1] == "SSD"


def test_nfs_scheduler_show_reports_the_read_ahead_of_the_mounted_device():
    text = (QUEUES + like_sda("sdb") + like_sda("sdc")).replace(
        "/dm-0/queue/read_ahead_kb:128", "/dm-0/queue/read_ahead_kb:4096"
    )
    seen = report(text)
    assert seen.table is not None
    assert [row[6] for row in seen.table.rows] == [*["4096 KiB"] * 4, "128 KiB", "128 KiB", "-"]


def test_hard_disk_without_a_scheduler_is_a_finding():
    findings = report(QUEUES + like_sda("sdb") + like_sda("sdc")).findings
    assert [
        finding.split()[0]
        for finding in findings
        if "is a hard disk without a scheduler" in finding
    ] == [
        "sda",
        "sdb",
        "sdc",
    ]


def test_nfs_export_without_a_disk_is_a_finding():
    (finding,) = report(HEALTHY).findings
    assert finding.startswith("/srv/onroot is on tmpfs (tm): its block devices are unknown")


def test_slice_idle_and_different_schedulers_are_findings():
    bfq = recorded("queue-bfq-linux-6.1").replace("slice_idle:0", "slice_idle:8")
    others = "".join(
        line + "\n" for line in HEALTHY.splitlines() if not line.startswith("/sys/block/sda/")
    )
    findings = report(bfq + others).findings
    assert "sda waits up to 8 ms for one process's next request (slice_idle)." in findings[-1]
    assert any("different schedulers (bfq, mq-deadline)" in finding for finding in findings)


def test_bfq_on_a_disk_that_is_no_hard_disk_is_a_finding():
    text = HEALTHY.replace(
        "/nvme0n1/queue/scheduler:none [mq-deadline]", "/nvme0n1/queue/scheduler:[bfq]"
    )
    assert any(
        finding.startswith("nvme0n1 is not a hard disk: bfq") for finding in report(text).findings
    )


def test_nfs_scheduler_show_reports_the_queue_of_the_multipath_device():
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", mounts.query_exports().command, "/export/mp  *(rw)\n")
    fleet.script("nas1", mounts.query_mount("/export/mp").command, recorded("findmnt-multipath"))
    fleet.script("nas1", block_tree.query_tree().command, recorded("lsblk-multipath"))
    dm0 = only("dm-0").replace("scheduler:none", "scheduler:[mq-deadline] none")
    fleet.script("nas1", queues("dm-0"), dm0)
    seen = SHOW.report(SHOW.read(fleet.run_query))
    assert seen.summary == "nas1 exports 1 directory from dm-0"
    assert seen.table is not None
    assert seen.table.rows[0][1:4] == ("mpatha (dm-0)", "mpatha (dm-0)", "mq-deadline")
    assert seen.healthy


def test_nfs_export_from_zfs_is_referred_to_the_zfs_runbooks():
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", mounts.query_exports().command, "/tank/home  *(rw)\n")
    zfs = recorded("findmnt-tmpfs").replace('"tm"', '"tank/home"').replace('"tmpfs"', '"zfs"')
    fleet.script("nas1", mounts.query_mount("/tank/home").command, zfs)
    fleet.script("nas1", block_tree.query_tree().command, recorded("lsblk"))
    seen = SHOW.report(SHOW.read(fleet.run_query))
    assert seen.summary == "nas1 exports 1 directory from unknown disks"
    assert "run `zfs io`" in seen.findings[0]


def test_nfs_host_without_exports_needs_attention():
    seen = SHOW.report(
        SHOW.read(build_file_server_fleet({str(mounts.query_exports().command): ""}).run_query)
    )
    assert (seen.summary, seen.healthy) == ("nas1 exports nothing by NFS", False)


@pytest.mark.parametrize(
    "host", ["", "-x", "nas1;x", "NAS", "nas1\n", "../nas1", "nas1 ", 1, None]
)
def test_nfs_scheduler_show_refuses_an_invalid_host_name(host: object):
    with pytest.raises(ValidationError):
        ShowScheduler.model_validate({"host": host})


def test_other_disks_are_reported_when_one_queue_is_not_understood():
    text = (QUEUES + like_sda("sdb") + like_sda("sdc")).replace(
        "/sda/queue/read_ahead_kb:128", "/sda/queue/read_ahead_kb:plenty"
    )
    fleet = build_file_server_fleet({BEHIND_DISKS: text})
    seen = read_report(SHOW, fleet.run_query, SHOW.report)
    assert seen.summary.endswith("; 1 row is not understood")
    assert seen.table is not None
    assert seen.table.rows[0] == (
        *("/export/projects", "vg0-export (dm-0)", "sda", "unknown", "-", "-"),
        *("128 KiB", "-", "-"),
    )
    assert seen.table.rows[1][2:4] == ("sdb", "none")


def test_other_exports_are_reported_when_one_directory_is_gone():
    fleet = build_file_server_fleet({BEHIND_DISKS: QUEUES + like_sda("sdb") + like_sda("sdc")})
    gone = mounts.query_mount("/export/fast").command
    fleet.script("nas1", gone, Answer(1, "", ""))
    fleet.script(
        "nas1", queues("dm-0", "sda", "sdb", "sdc"), QUEUES + like_sda("sdb") + like_sda("sdc")
    )
    seen = SHOW.report(SHOW.read(fleet.run_query))
    assert seen.table is not None
    assert ("/export/fast", "unknown") in [row[:2] for row in seen.table.rows]
    assert ("/export/home/sub", "sdc1") in [row[:2] for row in seen.table.rows]
    assert any(each.startswith("the mount of /export/fast is unknown: ") for each in seen.findings)
