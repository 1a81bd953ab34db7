"""The storage runbooks against this machine's kernel, on a loop device over SSH."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import block, block_rule, block_tree, mounts
from connectors.block import BlockQueue
from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks import Refused
from runbooks.nfs_scheduler_set import SetScheduler
from tests.acceptance.direct_execution import execute_plan, undo_plan
from tests.playground.daemon import find_program
from tests.playground.loop_device import explain_missing_support, loop_device
from tests.playground.sshd import Sshd
from tests.runbooks.declared import load_check

DiskTraffic = load_check("disk io")

_MISSING = explain_missing_support()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_MISSING), reason=f"no loop device can be made: {_MISSING}"),
]


@pytest.fixture
def device() -> Iterator[str]:
    with loop_device() as name:
        yield name


@pytest.fixture
def fleet(sshd: Sshd) -> Iterator[Fleet]:
    find_program("/usr/bin/iostat", package="sysstat")
    entry = sshd.inventory_entry(area="storage", tags=["nfs"])
    fleet = Fleet(Inventory.model_validate({"hosts": {"nas1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def build_set_scheduler(device: str, **fields: object) -> SetScheduler:
    return SetScheduler.model_validate({"host": "nas1", "device": device} | fields)


def queue_of(fleet: Fleet, device: str) -> BlockQueue:
    return fleet.run_query("nas1", block.query_queues([device]))[device]


def use_scheduler(fleet: Fleet, device: str, scheduler: str) -> BlockQueue:
    """Have the device use *scheduler*, or skip the test where this kernel has none of the name."""
    try:
        fleet.run_command("nas1", block.set_queue_setting(device, "scheduler", scheduler))
    except CommandError as failed:
        pytest.skip(f"this kernel has no {scheduler}: {failed}")
    return queue_of(fleet, device)


def test_io_scheduler_and_tunables_are_set_verified_and_undone(fleet: Fleet, device: str):
    use_scheduler(fleet, device, "bfq")
    before = use_scheduler(fleet, device, "none")
    change = build_set_scheduler(
        device, scheduler="bfq", slice_idle=0, read_ahead_kb=4096, nr_requests=64
    )
    plan = execute_plan(fleet, change)
    assert [step.after for step in plan.steps] == ["bfq", "64", "0", "4096"]
    queue = queue_of(fleet, device)
    assert (queue.scheduler, queue.slice_idle) == ("bfq", 0)
    assert (queue.read_ahead_kb, queue.nr_requests) == (4096, 64)
    undo_plan(fleet, change, plan)
    assert queue_of(fleet, device) == before


def test_undo_of_an_io_scheduler_change_restores_every_tunable(fleet: Fleet, device: str):
    use_scheduler(fleet, device, "bfq")
    tuned = {"slice_idle": 0, "low_latency": 0, "fifo_expire_async": 400, "timeout_sync": 200}
    for name, value in tuned.items():
        fleet.run_command("nas1", block.set_queue_setting(device, f"iosched/{name}", value))
    fleet.run_command("nas1", block.set_queue_setting(device, "nr_requests", 32))
    before = queue_of(fleet, device)
    change = build_set_scheduler(device, scheduler="mq-deadline")
    plan = execute_plan(fleet, change)
    assert queue_of(fleet, device).slice_idle is None
    undo_plan(fleet, change, plan)
    assert queue_of(fleet, device).tunables == before.tunables
    assert queue_of(fleet, device).nr_requests == 32


def test_without_restored_tunables_switching_back_resets_them(fleet: Fleet, device: str):
    use_scheduler(fleet, device, "bfq")
    fleet.run_command("nas1", block.set_queue_setting(device, "iosched/slice_idle", 0))
    use_scheduler(fleet, device, "mq-deadline")
    assert use_scheduler(fleet, device, "bfq").slice_idle == 8


@pytest.mark.parametrize("scheduler", ["mq-deadline", "kyber", "bfq"])
def test_every_tunable_of_an_io_scheduler_can_be_written_back(
    fleet: Fleet, device: str, scheduler: str
):
    before = use_scheduler(fleet, device, scheduler)
    assert before.tunables
    fleet.run_command("nas1", block.restore_queue(before))
    assert queue_of(fleet, device) == before


def test_udev_rule_of_an_io_scheduler_is_written_and_removed_by_the_undo(
    fleet: Fleet, device: str
):
    change = build_set_scheduler(device, scheduler="mq-deadline", persist=True)
    file = Path(block_rule.make_rule_path(device, queue_of(fleet, device).identity))
    try:
        plan = execute_plan(fleet, change)
        assert f'KERNEL=="{device}", ATTR{{queue/scheduler}}="mq-deadline"\n' in file.read_text()
        undo_plan(fleet, change, plan)
        assert not file.exists()
    finally:
        file.unlink(missing_ok=True)


def test_tunable_changed_by_the_kernel_is_read_back(fleet: Fleet, device: str):
    use_scheduler(fleet, device, "bfq")
    fleet.run_command("nas1", block.set_queue_setting(device, "iosched/slice_idle", 5_000_000_000))
    left = build_set_scheduler(device, scheduler="bfq", slice_idle=8)
    plan = left.plan(left.read(fleet.run_query))
    assert len(plan.steps) == 1
    assert "slice_idle 5000000000" not in plan.current_state


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("scheduler", "cfq-or-whatever", "refuses this value"),
        ("iosched/slice_idle", "1 2", "refuses this value"),
        ("iosched/slice_idle", "0x1g", "refuses this value"),
        ("iosched/slice_idle", "-1", "refuses this value"),
        ("iosched/nothing", "1", "has no such tunable"),
    ],
)
def test_tunable_that_the_kernel_refuses_changes_nothing(
    fleet: Fleet, device: str, setting: str, value: str, why: str
):
    before = use_scheduler(fleet, device, "bfq")
    with pytest.raises(CommandError, match=why):
        fleet.run_command("nas1", block.set_queue_setting(device, setting, value))
    assert queue_of(fleet, device) == before


def test_missing_block_device_is_refused(fleet: Fleet, device: str):
    with pytest.raises(Refused, match=f"no block device nothing; it has .*{device}"):
        build_set_scheduler("nothing", scheduler="none").read(fleet.run_query)


def test_disk_load_is_reported_before_an_io_scheduler_change(fleet: Fleet, device: str):
    disk = build_set_scheduler(device, scheduler="none").read(fleet.run_query)
    assert device in disk.load
    assert "could not be measured" not in disk.load


def test_disk_traffic_shows_the_reads_of_a_busy_disk(fleet: Fleet, device: str):
    reading = ("dd", f"if=/dev/{device}", "of=/dev/null", "bs=64k", "iflag=direct", "status=none")
    script = 'while :; do "$@" || exit; done'
    load = subprocess.Popen(("sh", "-c", script, "sh", *reading))
    try:
        look = DiskTraffic.model_validate({"host": "nas1", "seconds": 1})
        report = look.report(look.read(fleet.run_query))
    finally:
        load.kill()
        load.wait()
    assert report.table is not None
    (row,) = (row for row in report.table.rows if row[0] == device)
    assert row[5:7] == ("64 KiB", "mixed")


def test_block_device_of_the_root_file_system_is_found(fleet: Fleet):
    mount = fleet.run_query("nas1", mounts.query_mount("/"))
    tree = fleet.run_query("nas1", block_tree.query_tree())
    node = tree.find_mounted(mount.device_number, mount.source)
    if node is None:
        pytest.skip(f"/ lies on {mount.type} and not on a block device")
    names = [each.kernel_name for each in tree.list_queue_devices(node)]
    assert fleet.run_query("nas1", block.query_queues(names)).keys() == set(names)
