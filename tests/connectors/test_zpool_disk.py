"""Disks of a pool are found by path, kernel name or GUID."""

import pytest

from connectors import zpool_disk
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.zpool import Pool, Vdev

FOR_ROOT = (
    zpool_disk.replace_disk("tank", "sdb", "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"),
    zpool_disk.bring_online("tank", "/dev/sdb1"),
    zpool_disk.take_offline("tank", "9263487234987234"),
    zpool_disk.clear_errors("tank"),
)
POOL = Pool(
    "tank",
    "ONLINE",
    (
        Vdev("mirror-0", "ONLINE", is_leaf=False),
        Vdev("/dev/sda1", "ONLINE"),
        Vdev("/dev/nvme0n1p1", "ONLINE"),
        Vdev("sdb", "ONLINE"),
        Vdev("9263487234987234", "UNAVAIL", note="was /dev/sdc1"),
    ),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sda", "/dev/sda1"),
        ("/dev/sda", "/dev/sda1"),
        ("/dev/sda1", "/dev/sda1"),
        ("/dev/nvme0n1", "/dev/nvme0n1p1"),
        ("/dev/sdb", "sdb"),
        ("9263487234987234", "9263487234987234"),
        ("sd", None),
        ("mirror-0", None),
        ("sdc", None),
    ],
)
def test_pool_disk_is_found_by_path_name_or_guid(name: str, expected: str | None):
    disk = zpool_disk.find_disk(POOL, name)
    assert (disk.name if disk else None) == expected


def test_path_of_a_new_disk_is_resolved_to_its_device():
    parse = zpool_disk.query_device_path("/dev/disk/by-id/x").parse
    assert parse("/dev/sdc\n") == "/dev/sdc"
    with pytest.raises(ParseError):
        parse("")


@pytest.mark.parametrize(
    ("printed", "meaning"),
    [
        ("cannot replace x with y: no such device in pool", "the pool has no such disk"),
        ("cannot replace sdb with sdc: device is too small", "smaller than the old one"),
        ("/dev/sdc is part of active pool 'other'", "the new disk is in use"),
        ("cannot offline sdb: no valid replicas", "no other copy"),
    ],
)
def test_zpool_replace_errors_are_explained(printed: str, meaning: str):
    command = zpool_disk.replace_disk("tank", "sdb", "/dev/sdc")
    assert meaning in str(find_failure(command, Answer(1, "", printed), frozenset({0})))
