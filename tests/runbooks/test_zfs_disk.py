from collections.abc import Sequence

import pytest

from connectors import zpool_disk
from connectors.zpool import Pool, Scan, Vdev
from runbooks import NoUndo, Refused
from runbooks.zfs_disk import ClearErrors, DiskState, OnlineDisk, ReplaceDisk
from tests.runbooks.nas import build_nas_fleet

TANK = {"host": "nas1", "pool": "tank"}
REPLACE = ReplaceDisk.model_validate(TANK | {"disk": "sdb", "new_disk": "/dev/disk/by-id/ata-NEW"})
ONLINE = OnlineDisk.model_validate(TANK | {"disk": "sdb"})
CLEAR = ClearErrors.model_validate(TANK)
RESILVER = Scan("resilver", "running", percent=10.0)


def state(*disks: Vdev, scans: Sequence[Scan] = (), pool: str = "DEGRADED") -> DiskState:
    vdevs = (Vdev("mirror-0", "DEGRADED", is_leaf=False), Vdev("/dev/sda1", "ONLINE"), *disks)
    return DiskState(Pool("tank", pool, vdevs, scans=tuple(scans)), "/dev/sdc")


def test_zfs_replace_replaces_a_faulted_disk_without_undo():
    plan = REPLACE.plan(state(Vdev("/dev/sdb1", "FAULTED")))
    (step,) = plan.steps
    assert str(step.do) == "zpool replace tank sdb /dev/disk/by-id/ata-NEW"
    assert isinstance(step.undo, NoUndo)
    assert plan.notes[0].startswith("/dev/disk/by-id/ata-NEW is /dev/sdc now")
    assert len(plan.notes) == 2
    assert "check that it is the disk" in REPLACE.plan(state(Vdev("sdb", "ONLINE"))).notes[2]


def test_zfs_replace_plans_no_steps_when_the_new_disk_is_in_the_pool():
    new = Vdev("/dev/sdc1", "ONLINE")
    assert REPLACE.plan(state(new)).current_state == "/dev/sdc1 is in tank (ONLINE)"
    assert REPLACE.plan(state(Vdev("/dev/sdb1", "UNAVAIL"), new, scans=[RESILVER])).steps == ()
    report = REPLACE.report_progress(state(new, scans=[RESILVER]))
    assert report.running
    assert "resilver running" in report.summary
    assert not REPLACE.report_progress(state(new, pool="ONLINE")).running


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        (state(), "sdb is not a disk of tank"),
        (state(Vdev("sdb", "FAULTED"), scans=[RESILVER]), "busy with a resilver"),
    ],
)
def test_zfs_replace_refuses_a_disk_that_cannot_be_replaced_now(pool: DiskState, reason: str):
    with pytest.raises(Refused, match=reason):
        REPLACE.plan(pool)


def test_zfs_online_brings_a_disk_online_and_undo_takes_it_offline():
    (step,) = ONLINE.plan(state(Vdev("/dev/sdb1", "OFFLINE"))).steps
    assert step.do == zpool_disk.bring_online("tank", "sdb")
    assert step.undo == zpool_disk.take_offline("tank", "sdb")
    (pulled,) = ONLINE.plan(state(Vdev("/dev/sdb1", "REMOVED"))).steps
    assert isinstance(pulled.undo, NoUndo)
    assert ONLINE.plan(state(Vdev("/dev/sdb1", "ONLINE"))).steps == ()


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        (state(Vdev("/dev/sdb1", "FAULTED")), "request zfs clear, or zfs replace"),
        (state(), "tank has no disk sdb: its disks are /dev/sda1"),
    ],
)
def test_zfs_online_refuses_a_faulted_or_missing_disk(pool: DiskState, reason: str):
    with pytest.raises(Refused, match=reason):
        ONLINE.plan(pool)


def test_zfs_clear_clears_counted_errors_of_a_pool():
    bad = state(Vdev("/dev/sdb1", "ONLINE", checksum_errors=7))
    plan = CLEAR.plan(bad)
    assert str(plan.steps[0].do) == "zpool clear tank"
    assert "/dev/sdb1: 7 checksum errors" in plan.notes[0]
    assert CLEAR.plan(state(pool="SUSPENDED")).steps
    assert CLEAR.plan(state()).current_state == "tank has no errors to clear"


def test_zfs_replace_reads_the_pool_and_the_path_of_the_new_disk():
    fleet = build_nas_fleet("2.1-offline")
    fleet.script("nas1", zpool_disk.query_device_path(REPLACE.new_disk).command, "/dev/sdc\n")
    reading = REPLACE.read(fleet.run_query)
    assert (reading.pool.name, reading.new_path) == ("tank", "/dev/sdc")
