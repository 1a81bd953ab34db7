import re
import subprocess
from pathlib import Path

import pytest

from connectors import block
from connectors.block import BlockQueue, parse_queues
from connectors.command import Answer, Shell, find_failure
from connectors.errors import CommandError
from tests.connectors.storage import recorded
from tests.connectors.understanding import is_understood

LINUX_6_1 = recorded("queues-linux-6.1")
BFQ = recorded("queue-bfq-linux-6.1")
HOSTILE_DEVICES = (
    "",
    ".",
    "..",
    "../../../etc",
    "sda/../../../tmp/x",
    "sda/queue",
    "/sys/block/sda",
    "sda;reboot",
    "sda reboot",
    "sda\n",
    "sda\0",
    "-sda",
    "--help",
    "s*a",
    "$(reboot)",
    "`reboot`",
    "1sda",
    "sda.",
    "ｓda",
    "a" * 65,
)


def test_disk_without_an_io_scheduler_is_parsed():
    disk = parse_queues(LINUX_6_1, ["sda"])["sda"]
    assert disk == BlockQueue(
        "sda",
        "none",
        ("none", "mq-deadline"),
        read_ahead_kb=128,
        nr_requests=256,
        rotational=True,
        tunables={},
        identity=("device/wwid", "naa.5000c50000000001"),
    )
    assert disk.slice_idle is None
    assert disk.get_setting("iosched/slice_idle") == ""


def test_disk_with_bfq_is_parsed_with_its_tunables():
    disk = parse_queues(BFQ, ["sda"])["sda"]
    assert (disk.scheduler, disk.available_schedulers) == ("bfq", ("mq-deadline", "bfq", "none"))
    assert disk.slice_idle == 0
    assert disk.tunables["low_latency"] == 0
    assert disk.tunables["timeout_sync"] == 124
    values = ("scheduler", "read_ahead_kb", "nr_requests", "iosched/slice_idle")
    assert [disk.get_setting(name) for name in values] == ["bfq", "4096", "512", "0"]


@pytest.mark.parametrize(
    ("device", "offered", "read_ahead", "rotational", "identity"),
    [
        ("sdd", ("none", "mq-deadline"), 128, True, "naa.5000c50000000004"),
        ("md0", ("none",), 128, True, None),
        ("md1", ("none",), 2048, True, None),
        ("dm-0", ("none",), 128, True, None),
        (
            "nvme0n1",
            ("none", "mq-deadline"),
            128,
            False,
            "nvme.1b36-4e564d4553455231-51454d55204e564d65204374726c-00000001",
        ),
    ],
)
def test_block_queue_of_each_kind_of_device_is_parsed(
    device: str,
    offered: tuple[str, ...],
    read_ahead: int,
    rotational: bool,
    identity: str | None,
):
    queue = parse_queues(LINUX_6_1, [device])[device]
    assert queue.scheduler == "none"
    assert queue.available_schedulers == offered
    assert queue.read_ahead_kb == read_ahead
    assert queue.rotational is rotational
    assert (queue.identity or ("", None))[1] == identity


def test_block_device_without_a_scheduler_file_has_the_scheduler_none():
    queue = parse_queues(
        "/sys/block/zram0/queue/read_ahead_kb:128\n/sys/block/zram0/queue/rotational:0\n",
        ["zram0"],
    )["zram0"]
    assert (queue.scheduler, queue.available_schedulers, queue.nr_requests) == (
        "none",
        ("none",),
        None,
    )
    assert queue.get_setting("nr_requests") == ""
    restored = block.restore_queue(queue).words
    assert restored[-2:] == ("zram0", "scheduler=none")


def test_disk_identity_with_blanks_is_not_used():
    text = LINUX_6_1.replace("naa.5000c50000000001", "t10.ATA     A DISK          0001")
    assert parse_queues(text, ["sda"])["sda"].identity is None


@pytest.mark.parametrize("device", ["sdzz", "sdc1"])
def test_block_device_without_a_queue_is_an_error(device: str):
    with pytest.raises(CommandError, match=f"no block device {device}"):
        parse_queues(LINUX_6_1, [device])


@pytest.mark.parametrize(
    "text",
    [
        "grep: something\n",
        "/sys/block/sda/queue/scheduler\n",
        "/sys/block/../sda/queue/scheduler:none\n",
        "/sys/block/sda/queue/scheduler:[a] [b]\n",
        "/sys/block/sda/queue/scheduler:a b\n",
        "/sys/block/sda/queue/scheduler:\n",
        "/sys/block/sda/queue/scheduler:[$(x)]\n",
        "/sys/block/sda/queue/scheduler:none\n",
        "/sys/block/sda/queue/read_ahead_kb:much\n/sys/block/sda/queue/rotational:0\n",
        "/sys/block/sda/queue/read_ahead_kb:\n/sys/block/sda/queue/rotational:0\n",
        BFQ + "/sys/block/sda/queue/iosched/odd:eight\n",
    ],
)
def test_invalid_block_queue_is_not_understood(text: str):
    assert not is_understood(lambda: parse_queues(text, ["sda"]))


def test_block_queue_setting_is_written_as_root_by_the_restoring_script():
    shell = block.set_queue_setting("sdb", "iosched/slice_idle", 0)
    assert shell.words[3:] == ("keyturn", "sdb", "iosched/slice_idle=0")
    assert (shell.stdin, shell.root) == ("", True)


def test_restore_of_a_block_queue_sets_the_scheduler_before_its_tunables():
    queue = parse_queues(BFQ, ["sda"])["sda"]
    words = block.restore_queue(queue).words
    assert words[3:7] == ("keyturn", "sda", "scheduler=bfq", "nr_requests=512")
    idle = [word for word in words if "slice_idle" in word]
    assert idle == ["iosched/slice_idle=0", "iosched/slice_idle_us=0"]


@pytest.mark.parametrize("device", HOSTILE_DEVICES)
def test_invalid_block_device_name_never_becomes_a_path(device: str):
    with pytest.raises(ValueError, match=re.escape(repr(device))):
        block.set_queue_setting(device, "scheduler", "none")
    with pytest.raises(ValueError, match="is not the name"):
        block.query_queues(["sda", device])
    with pytest.raises(ValueError, match="is not the name"):
        block.restore_queue(
            BlockQueue(device, "none", ("none",), 128, 256, rotational=False, tunables={})
        )


def test_without_the_check_of_device_names_a_path_leads_out_of_sys():
    path = Path(f"/sys/block/{HOSTILE_DEVICES[4]}/queue/scheduler")
    assert not path.resolve().is_relative_to("/sys")


@pytest.mark.parametrize(
    ("answer", "there"),
    [
        ("/lib/modules/6.1.0-56-amd64/kernel/block/bfq.ko\n", True),
        ("(builtin)\n", True),
        ("", False),
    ],
)
def test_scheduler_module_is_available_when_modinfo_finds_it(answer: str, there: bool):
    assert block.query_module("bfq").parse(answer) is there


def test_scheduler_module_is_queried_by_its_iosched_alias():
    query = block.query_module("bfq")
    assert query.command == Shell(("modinfo", "-n", "bfq-iosched"))
    assert query.statuses == {0, 1}
    with pytest.raises(ValueError, match="is not the name of a scheduler"):
        block.query_module("../bfq")


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("sh: 1: printf: printf: I/O error", "refuses this value"),
        ("sh: 1: cannot create iosched/slice_idle: Permission denied", "this requires root"),
        ("printf: slice_idle: Numerical result out of range", "too large"),
        ("sh: 1: cd: can't cd to /sys/block/sdb1/queue", "does not exist any more"),
    ],
)
def test_block_queue_errors_are_explained(output: str, meaning: str):
    error = find_failure(
        block.set_queue_setting("sda", "scheduler", "cfq"),
        Answer(1, "cfq\n", output),
        frozenset({0}),
    )
    assert meaning in str(error)


def test_block_queue_restore_stops_at_the_first_value_that_is_not_accepted(tmp_path: Path):
    (tmp_path / "iosched").mkdir()
    for name in ("scheduler", "nr_requests"):
        (tmp_path / name).touch()
    (tmp_path / "iosched" / "a").mkdir()
    (tmp_path / "iosched" / "b").touch()
    queue = BlockQueue("sda", "bfq", ("bfq",), 128, 8, rotational=False, tunables={"a": 1, "b": 2})
    words = block.restore_queue(queue).words
    script = words[2].replace("/sys/block/$1/queue", str(tmp_path))
    done = subprocess.run(
        ("sh", "-c", script, *words[3:]), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert (tmp_path / "scheduler").read_text() == "bfq\n"
    assert (tmp_path / "nr_requests").read_text() == "8\n"
    assert (tmp_path / "iosched" / "b").read_text() == ""
