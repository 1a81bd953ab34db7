"""Commands of zpool, and how their answers are judged."""

import json
from datetime import UTC, datetime

import pytest

from connectors import zfs
from connectors.command import Answer, Command, Shell, find_failure
from connectors.errors import CommandError, ParseError
from connectors.zfs import DeviceTraffic, LoadAverage, PoolSpace
from tests.connectors.test_zpool_json import NOW, document
from tests.connectors.test_zpool_text import recorded
from tests.connectors.understanding import is_understood
from tests.runbooks.nas import build_nas_fleet
from tests.scripted_fleet import ScriptedFleet


def describe_outcome(command: Command, answer: Answer) -> str:
    return str(find_failure(command, answer, frozenset({0})) or "done")


def test_zpool_status_in_json_is_queried_once_with_the_host_time():
    fleet = ScriptedFleet({("nas1", zfs.query_json_status().command): json.dumps(document())})
    storage = zfs.read_storage(fleet.run_query, "nas1")
    assert storage.host_time == datetime.fromtimestamp(NOW, UTC)
    assert storage.can_pause
    assert len(fleet.asked) == 1


def test_zpool_status_falls_back_to_text_when_the_json_is_unknown():
    fleet = build_nas_fleet("2.1-several")
    fleet.script("nas1", zfs.query_json_status().command, '{"output_version": {}}')
    assert len(zfs.read_storage(fleet.run_query, "nas1").pools) == 3


def test_zpool_status_of_an_older_zfs_is_read_as_text():
    fleet = build_nas_fleet("2.1-several")
    storage = zfs.read_storage(fleet.run_query, "nas1")
    assert [pool.name for pool in storage.pools] == ["tank", "tank.a-b_c:1", "tank2"]
    assert storage.host_time == datetime.fromisoformat("2026-11-21 08:30:00")
    assert storage.can_pause


def test_zpool_status_of_zfs_fuse_is_read_as_text_without_pause():
    storage = zfs.read_storage(build_nas_fleet("fuse-running").run_query, "nas1")
    assert [pool.name for pool in storage.pools] == ["tank"]
    assert not storage.can_pause


def test_missing_zfs_kernel_module_is_not_taken_for_an_older_zfs():
    gone = Answer(1, "", "The ZFS modules are not loaded.\nTry running '/sbin/modprobe zfs'\n")
    fleet = ScriptedFleet({("nas1", zfs.query_json_status().command): gone})
    with pytest.raises(CommandError, match="kernel module is not loaded"):
        zfs.read_storage(fleet.run_query, "nas1")
    assert len(fleet.asked) == 1


def test_missing_pool_error_lists_the_pools():
    storage = zfs.read_storage(build_nas_fleet("2.1-several").run_query, "nas1")
    with pytest.raises(CommandError, match=r"no pool tanc; its pools: tank, tank\.a-b_c:1, tank2"):
        zfs.find_pool("tanc", storage)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (zfs.start_scrub("tank"), "zpool scrub tank"),
        (zfs.stop_scrub("tank"), "zpool scrub -s tank"),
        (zfs.pause_scrub("tank"), "zpool scrub -p tank"),
        (zfs.query_traffic("tank", 5).command, "zpool iostat -v tank 5 2"),
        (zfs.query_traffic("", 5).command, "zpool iostat -v 5 2"),
        (zfs.query_clock().command, "date '+%Y-%m-%d %H:%M:%S'"),
    ],
)
def test_zpool_commands_have_the_expected_words(command: Command, words: str):
    assert str(command) == words


def test_pool_name_is_an_argument_of_the_scrub_stop_script():
    one, two = zfs.stop_scrub_on_fuse("tank"), zfs.stop_scrub_on_fuse("other")
    assert one.words[:-1] == two.words[:-1]
    assert one.words[-2:] == ("keyturn", "tank")


def test_scrub_commands_need_root_and_end_within_a_minute():
    orders = [
        say("tank")
        for say in (zfs.start_scrub, zfs.stop_scrub, zfs.stop_scrub_on_fuse, zfs.pause_scrub)
    ]
    assert all(order.root and order.deadline <= 60 for order in orders)


def test_zpool_iostat_deadline_exceeds_its_sampling_time():
    command = zfs.query_traffic("tank", 60).command
    assert isinstance(command, Shell)
    assert command.deadline > 60


@pytest.mark.parametrize(
    ("status", "output", "meaning"),
    [
        (1, "cannot scrub tank: currently resilvering", "a resilver is running"),
        (1, "cannot cancel scrubbing tank: there is no active scrub", "has already ended"),
        (1, "no scrub of tank is running", "has already ended"),
        (
            1,
            "cannot scrub tank: currently scrubbing; use 'zpool scrub -s' to cancel current scrub",
            "someone else has started",
        ),
        (
            1,
            "cannot pause scrubbing tank: scrub is paused; use 'zpool scrub' to resume",
            "someone else has paused",
        ),
        (1, "cannot scrub tank: permission denied", "this requires root"),
        (1, "cannot cancel scrubbing tank2: pool I/O is currently suspended", "lost its disks"),
        (1, "cannot open 'tank': no such pool", "this host has no such pool"),
        (
            1,
            "connect: Permission denied\ninternal error: failed to initialize ZFS library",
            "this requires root",
        ),
        (
            1,
            "connect: Connection refused\nPlease make sure that the zfs-fuse daemon is running.\n"
            "internal error: failed to initialize ZFS library",
            "zfs-fuse is not running",
        ),
    ],
)
def test_zpool_scrub_errors_are_explained(status: int, output: str, meaning: str):
    assert meaning in describe_outcome(zfs.start_scrub("tank"), Answer(status, "", f"{output}\n"))


def test_zpool_list_is_parsed_with_space_and_capacity():
    assert zfs.parse_spaces(recorded("fuse-list")) == (
        PoolSpace("other", "123M", "544K", "122M", 0, "ONLINE"),
        PoolSpace("tank", "123M", "61.0M", "62.0M", 49, "ONLINE"),
    )
    (faulted,) = zfs.parse_spaces("tank\t-\t-\t-\t-\tFAULTED\n")
    assert faulted.capacity is None
    assert zfs.parse_spaces("") == ()


@pytest.mark.parametrize("answer", ["tank", "tank\t1G\t1G\t0\t1%\n", "tank 1G 1G 0 1% ONLINE"])
def test_invalid_zpool_list_is_not_understood(answer: str):
    assert not is_understood(lambda: zfs.parse_spaces(answer))


def test_load_average_is_parsed():
    assert zfs.parse_load("4.38 5.94 3.57 22/390 11660\n") == LoadAverage(4.38, 5.94, 3.57)
    for answer in ("", "1.0 2.0", "a b c d e"):
        with pytest.raises(ParseError):
            zfs.parse_load(answer)


def test_zpool_iostat_shows_only_the_second_sample():
    traffic = zfs.parse_traffic(recorded("fuse-iostat"))
    assert traffic[0] == DeviceTraffic("other", 0, 0, 0, 0, 0)
    assert traffic[2] == DeviceTraffic("tank", 0, 243, 3779, 974 * 1024, 75_707_187)
    assert [(each.depth, each.name) for each in traffic[2:]] == [
        (0, "tank"),
        (1, "mirror"),
        (2, "/srv/disks/d0"),
        (2, "/srv/disks/d1"),
    ]
    assert zfs.parse_traffic("") == ()


def test_zpool_iostat_of_a_pool_named_pool_is_parsed_without_headings():
    sample = (
        "              capacity     operations     bandwidth \n"
        "pool        alloc   free   read  write   read  write\n"
        "----------  -----  -----  -----  -----  -----  -----\n"
        "pool        14.6G  54.9G      4     55   250K  2.69M\n"
        "  sda1      14.6G  54.9G      4     55   250K  2.69M\n"
        "logs            -      -      -      -      -      -\n"
        "  sdb1          0  3.75G      0      1      0    12K\n"
        "----------  -----  -----  -----  -----  -----  -----\n"
    )
    names = [each.name for each in zfs.parse_traffic(sample + sample)]
    assert names == ["pool", "sda1", "sdb1"]
    with pytest.raises(ParseError, match="cut off"):
        zfs.parse_traffic(sample)


@pytest.mark.parametrize("answer", ["usage:\n", "tank 1 2 3 4 5 6\ntank 1 2 3 4 5 fast\n"])
def test_invalid_zpool_iostat_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        zfs.parse_traffic(answer)


def test_invalid_host_clock_is_a_parse_error():
    with pytest.raises(ParseError):
        zfs.query_clock().parse("half past nine\n")
