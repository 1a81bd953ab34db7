"""The ZFS runbooks against a real zfs-fuse, over a real sshd."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from connectors import zfs, zfs_property
from connectors.command import Query, Shell
from connectors.errors import CommandError, CommandTimeoutError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from connectors.zfs_disks import read_disks
from runbooks import NoUndo, Refused, Report
from runbooks.zfs_disk import ClearErrors, OnlineDisk, ReplaceDisk
from runbooks.zfs_pools import ListPools
from runbooks.zfs_scrub_start import ForceScrub, StartScrub
from runbooks.zfs_scrub_status import ScrubStatus
from runbooks.zfs_scrub_stop import PauseScrub, StopScrub
from runbooks.zfs_set import SetProperty
from tests.acceptance.direct_execution import execute_plan, undo_plan
from tests.plans import list_work
from tests.playground.daemon import PATH
from tests.playground.sshd import Sshd
from tests.playground.zfs_fuse import ZfsFuse, explain_missing_support
from tests.runbooks.declared import load_change, load_check

PoolTraffic = load_check("zfs io")

TakeSnapshot = load_change("zfs snapshot")

_MISSING = explain_missing_support()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_MISSING), reason=f"zfs-fuse cannot run here: {_MISSING}"),
]

TANK = {"host": "nas1", "pool": "tank"}
START = StartScrub.model_validate(TANK | {"max_load": 9999})
FORCE = ForceScrub.model_validate(TANK)
STOP = StopScrub.model_validate(TANK)
PAUSE = PauseScrub.model_validate(TANK)
STATUS = ScrubStatus.model_validate(TANK)
POOLS = ListPools.model_validate({"host": "nas1"})


@pytest.fixture
def nas() -> Iterator[ZfsFuse]:
    with ZfsFuse() as nas:
        yield nas


@pytest.fixture
def fleet(nas: ZfsFuse) -> Iterator[Fleet]:
    with Sshd(env={"PATH": f"{nas.bin}:{PATH}"}) as sshd:
        entry = sshd.inventory_entry(area="storage", tags=["zfs"])
        inventory = Inventory.model_validate({"hosts": {"nas1": entry}})
        fleet = Fleet(inventory, SshPool(Path("/")))
        yield fleet
        fleet.close()


def create_mirror(nas: ZfsFuse, *, megabytes: int = 40) -> tuple[Path, Path]:
    first, second = nas.disk("d0"), nas.disk("d1")
    nas.pool("tank", "mirror", first, second)
    nas.fill("tank", megabytes=megabytes)
    return first, second


def get_status(fleet: Fleet) -> Report:
    return STATUS.report(STATUS.read(fleet.run_query))


def wait_until(done: Callable[[], bool], *, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_zfs_disk_is_onlined_replaced_and_cleared_and_snapshot_and_quota_undone(
    nas: ZfsFuse, fleet: Fleet
):
    # Only devices replace disks, and these are links to files.
    disks = [Path(f"/dev/keyturn-{os.getpid()}-{number}") for number in range(3)]
    try:
        for disk in disks:
            disk.symlink_to(nas.disk(disk.name, megabytes=64))
        nas.pool("tank", "mirror", *disks[:2])
        old, new = str(disks[1]), str(disks[2])
        _take_snapshot_and_set_quota(nas, fleet)
        nas.run("zpool", "offline", "tank", str(disks[1]))
        online = OnlineDisk.model_validate(TANK | {"disk": old})
        undo_plan(fleet, online, execute_plan(fleet, online))
        assert (
            f"{disks[1].name} is OFFLINE" in POOLS.report(POOLS.read(fleet.run_query)).findings[0]
        )
        swap = ReplaceDisk.model_validate(TANK | {"disk": old, "new_disk": new})
        execute_plan(fleet, swap)
        report = swap.report_progress(swap.read(fleet.run_query))
        assert report.running or report.summary == "tank is ONLINE"
        wait_until(lambda: disks[1].name not in nas.run("zpool", "status"))
        nas.fill("tank", megabytes=20)
        nas.damage(disks[2], megabytes=(8, 48))
        execute_plan(fleet, FORCE)
        wait_until(lambda: nas.scan("tank").startswith("scrub completed"))
        clear = ClearErrors.model_validate(TANK)
        assert "checksum errors" in execute_plan(fleet, clear).notes[0]
    finally:
        for disk in disks:
            disk.unlink(missing_ok=True)


def _take_snapshot_and_set_quota(nas: ZfsFuse, fleet: Fleet) -> None:
    nas.run("zfs", "create", "tank/home")
    values = {"host": "nas1", "dataset": "tank/home"}
    take = TakeSnapshot.model_validate(values | {"name": "before"})
    undo_plan(fleet, take, execute_plan(fleet, take))
    plan = execute_plan(fleet, take)
    nas.run("zfs", "clone", "tank/home@before", "tank/copy")
    undo = plan.steps[0].undo
    assert isinstance(undo, Shell)
    with pytest.raises(CommandError, match="depends on the snapshot"):
        fleet.run_command("nas1", fleet.resolve_command("nas1", undo))
    limit = SetProperty.model_validate(values | {"property": "quota", "value": "10240K"})
    undo_plan(fleet, limit, execute_plan(fleet, limit))
    low = SetProperty.model_validate(values | {"property": "quota", "value": "1K"})
    with pytest.raises(Refused, match=r"uses 2[0-9.]* KiB already"):
        low.plan(low.read(fleet.run_query))


def test_host_without_zfs_pools_is_reported(nas: ZfsFuse, fleet: Fleet):
    assert POOLS.report(POOLS.read(fleet.run_query)).summary == "nas1 has no ZFS pools"
    with pytest.raises(CommandError, match="no pool tank; its pools: none"):
        START.plan(START.read(fleet.run_query))


def test_never_scrubbed_zfs_pool_is_a_finding(nas: ZfsFuse, fleet: Fleet):
    create_mirror(nas)
    report = POOLS.report(POOLS.read(fleet.run_query))
    assert report.summary == "nas1 has 1 pool, all healthy"
    assert report.findings == [
        "tank was never scrubbed since it was imported: request `zfs scrub start`"
    ]
    assert report.table is not None
    (row,) = report.table.rows
    assert row[:2] == ("tank", "ONLINE")
    assert get_status(fleet).summary == "tank: never scrubbed since it was imported"


def test_zfs_scrub_repairs_damaged_blocks_of_a_mirror(nas: ZfsFuse, fleet: Fleet):
    _, second = create_mirror(nas)
    file = Path(f"/proc/{nas.pid}/root") / nas.run("ls", f"{nas.directory}/mnt/tank/noise")[1:-1]
    before = file.read_bytes()
    nas.damage(second, megabytes=(10, 60))
    execute_plan(fleet, START)
    wait_until(lambda: nas.scan("tank").startswith("scrub completed"))
    report = get_status(fleet)
    repaired = re.search(r"repaired ([\d.]+) MiB, 0 errors", report.summary)
    assert repaired is not None, report
    assert 30 < float(repaired[1]) < 50
    (finding,) = report.findings
    assert re.search(r"/d1 of tank has [\d,]+ checksum errors although it is ONLINE", finding)
    assert file.read_bytes() == before
    assert any(
        "/d1 of tank has " in each for each in POOLS.report(POOLS.read(fleet.run_query)).findings
    )


def test_zfs_status_names_the_files_with_lost_data(nas: ZfsFuse, fleet: Fleet):
    for disk in create_mirror(nas):
        nas.damage(disk, megabytes=(10, 60))
    execute_plan(fleet, START)
    wait_until(lambda: nas.scan("tank").startswith("scrub completed"))
    report = get_status(fleet)
    assert not report.healthy
    assert any(
        finding.startswith("tank has lost data in ") and "/mnt/tank/noise" in finding
        for finding in report.findings
    )


def test_zfs_scrub_is_not_repeated_when_just_completed(nas: ZfsFuse, fleet: Fleet):
    create_mirror(nas)
    execute_plan(fleet, START)
    wait_until(lambda: nas.scan("tank").startswith("scrub completed"))
    assert "just been scrubbed" in START.plan(START.read(fleet.run_query)).current_state


def test_running_zfs_scrub_is_shown_stopped_and_started_again(nas: ZfsFuse, fleet: Fleet):
    nas.pool("tank", nas.disk("d0"), small=True)
    nas.pool("other", nas.disk("d1"))
    nas.fill("tank", megabytes=36)
    with nas.slow():
        plan = execute_plan(fleet, START)
        assert "running" in get_status(fleet).summary
        again = START.plan(START.read(fleet.run_query))
        assert not again.steps
        assert again.current_state.startswith("tank is being scrubbed")
        beside = START.model_copy(update={"pool": "other"})
        with pytest.raises(Refused, match="tank is on the same disks and busy"):
            beside.plan(beside.read(fleet.run_query))
        with pytest.raises(Refused, match="zfs-fuse cannot pause"):
            PAUSE.plan(PAUSE.read(fleet.run_query))
        stopped = execute_plan(fleet, STOP)
        assert nas.scan("tank").startswith("scrub stopped")
        assert plan.steps[0].undo == stopped.steps[0].do
        assert list_work(START.plan(START.read(fleet.run_query))) == list_work(plan)
    # What has ended by itself cannot be stopped, and that is no success.
    with pytest.raises(CommandError, match="has already ended"):
        fleet.run_command("nas1", stopped.steps[0].do)
    assert not isinstance(stopped.steps[0].undo, NoUndo)
    fleet.run_command("nas1", stopped.steps[0].undo)
    wait_until(lambda: nas.scan("tank").startswith("scrub completed"))


def test_zfs_resilver_is_never_stopped(nas: ZfsFuse, fleet: Fleet):
    first, second, third = nas.disk("d0"), nas.disk("d1"), nas.disk("d2")
    nas.pool("tank", "mirror", first, second, small=True)
    nas.fill("tank", megabytes=40)
    with nas.slow():
        nas.run("zpool", "replace", "-o", "ashift=9", "tank", str(second), str(third))
        with pytest.raises(Refused, match="must not be stopped"):
            STOP.plan(STOP.read(fleet.run_query))
        with pytest.raises(Refused, match="try again when it has ended"):
            FORCE.plan(FORCE.read(fleet.run_query))
        with pytest.raises(CommandError):
            fleet.run_command("nas1", zfs.stop_scrub_on_fuse("tank"))
        assert nas.scan("tank").startswith("resilver in progress")
        # The twin: told without a look, zfs-fuse stops it and calls that a success.
        fleet.run_command("nas1", zfs.stop_scrub("tank"))
        assert nas.scan("tank").startswith("resilver stopped")
    assert any("was stopped early" in finding for finding in get_status(fleet).findings)


def test_degraded_zfs_pool_is_scrubbed_only_by_scrub_force(nas: ZfsFuse, fleet: Fleet):
    _, second = create_mirror(nas)
    nas.run("zpool", "offline", "tank", str(second))
    with pytest.raises(Refused, match=r"tank is DEGRADED \(.*/d1 is OFFLINE\).*zfs scrub force"):
        START.plan(START.read(fleet.run_query))
    plan = execute_plan(fleet, FORCE)
    assert any("Make a backup first" in note for note in plan.notes)
    wait_until(lambda: nas.scan("tank").startswith("scrub completed"))
    assert "tank is DEGRADED" in get_status(fleet).findings[0]


def test_zfs_pools_on_files_of_one_file_system_share_a_disk(nas: ZfsFuse, fleet: Fleet):
    nas.pool("tank", nas.disk("d0"))
    nas.pool("other", nas.disk("d1"))
    one, two = (
        read_disks(fleet.run_query, "nas1", pool)
        for pool in zfs.read_storage(fleet.run_query, "nas1").pools
    )
    assert one & two
    assert one != two


def test_zfs_pool_traffic_lists_pool_vdevs_and_disks(nas: ZfsFuse, fleet: Fleet):
    create_mirror(nas)
    for pool in ("tank", ""):
        watch = PoolTraffic.model_validate({"host": "nas1", "pool": pool, "seconds": 1})
        report = watch.report(watch.read(fleet.run_query))
        assert report.summary.startswith("In 1 s, tank ")
        assert report.table is not None
        assert [row[0].strip().rpartition("/")[2] for row in report.table.rows] == [
            "tank",
            "mirror",
            "d0",
            "d1",
        ]


def test_zfs_pool_traffic_without_pools_is_reported(fleet: Fleet):
    watch = PoolTraffic.model_validate({"host": "nas1", "seconds": 1})
    assert watch.report(watch.read(fleet.run_query)).summary == "nas1 has no ZFS pools"


def build_set_property(dataset: str, name: str, value: str) -> SetProperty:
    values = {"host": "nas1", "dataset": dataset, "property": name, "value": value}
    return SetProperty.model_validate(values)


def test_zfs_property_undo_restores_local_inherited_or_default_value(nas: ZfsFuse, fleet: Fleet):
    create_mirror(nas, megabytes=1)
    nas.run("zfs", "create", "tank/home")
    gzip = build_set_property("tank", "compression", "gzip-3")
    by_default = execute_plan(fleet, gzip)
    home = build_set_property("tank/home", "compression", "zle")
    inherited = execute_plan(fleet, home)
    assert inherited.steps[0].before == "gzip-3 (inherited from tank)"
    local = execute_plan(fleet, build_set_property("tank/home", "compression", "off"))
    undo_plan(fleet, build_set_property("tank/home", "compression", "off"), local)
    assert "zle" in nas.run("zfs", "get", "-H", "compression", "tank/home")
    undo_plan(fleet, home, inherited)
    assert "inherited from tank" in nas.run("zfs", "get", "-H", "compression", "tank/home")
    undo_plan(fleet, gzip, by_default)
    assert "default" in nas.run("zfs", "get", "-H", "compression", "tank")
    noatime = build_set_property("tank/home", "atime", "off")
    undo_plan(fleet, noatime, execute_plan(fleet, noatime))


def test_unknown_zfs_property_value_or_dataset_is_reported(nas: ZfsFuse, fleet: Fleet):
    nas.pool("tank", nas.disk("d0"))
    with pytest.raises(CommandError, match="too old for this property"):
        execute_plan(fleet, build_set_property("tank", "sync", "disabled"))
    with pytest.raises(CommandError, match="does not support this value"):
        execute_plan(fleet, build_set_property("tank", "compression", "zstd"))
    with pytest.raises(CommandError, match="no such dataset"):
        execute_plan(fleet, build_set_property("tank/absent", "compression", "off"))


def test_zfs_sharenfs_rejected_by_the_nfs_server_fails_the_step(nas: ZfsFuse, fleet: Fleet):
    nas.pool("tank", nas.disk("d0"))
    with pytest.raises(CommandError, match="the value is set, but the NFS server did not"):
        execute_plan(fleet, build_set_property("tank", "sharenfs", "rw=@192.0.2.0/24"))
    assert "rw=@192.0.2.0/24" in nas.run("zfs", "get", "-H", "sharenfs", "tank")


def test_zfs_property_value_with_shell_syntax_stays_one_argument(
    nas: ZfsFuse, fleet: Fleet, tmp_path: Path
):
    nas.pool("tank", nas.disk("d0"))
    # The types refuse such values long before; here the second lock is tried.
    for name, value in (("sharenfs", f"rw=a; touch {tmp_path}/x"), ("atime", "off tank/home")):
        with pytest.raises(CommandError):
            fleet.run_command("nas1", zfs_property.set_property("tank", name, value))
    assert list(tmp_path.iterdir()) == []


def test_hanging_zfs_query_times_out(nas: ZfsFuse, fleet: Fleet):
    nas.pool("tank", nas.disk("d0"))
    query = zfs.query_plain_status()
    assert isinstance(query.command, Shell)
    impatient = Query(replace(query.command, deadline=1), query.parse)
    os.kill(nas.pid, signal.SIGSTOP)
    with pytest.raises(CommandTimeoutError):
        fleet.run_query("nas1", impatient)
    os.kill(nas.pid, signal.SIGCONT)
    assert [pool.name for pool in fleet.run_query("nas1", impatient)] == ["tank"]


def test_stopped_zfs_fuse_is_reported(nas: ZfsFuse, fleet: Fleet):
    nas.run("rm", "/run/zfs/zfs_socket")
    with pytest.raises(CommandError, match="zfs-fuse is not running"):
        POOLS.read(fleet.run_query)
