import pytest

from connectors.block_tree import Node, Tree, parse_tree
from connectors.trouble import NotUnderstood
from tests.connectors.storage import recorded

TREE = parse_tree(recorded("lsblk"))
MULTIPATH = parse_tree(recorded("lsblk-multipath"))


def found(tree: Tree, number: str, source: str = "") -> Node:
    node = tree.mounted(number, source)
    assert node is not None
    return node


@pytest.mark.parametrize(
    ("tree", "number", "disks"),
    [
        (TREE, "253:0", ["sda", "sdb"]),  # LVM on a RAID 1
        (TREE, "8:33", ["sdc"]),  # a partition
        (TREE, "9:1", ["sdf", "sdg"]),  # a RAID 10
        (TREE, "259:1", ["nvme0n1"]),
        (MULTIPATH, "253:0", ["dm-0"]),
    ],
)
def test_the_disks_behind_a_mount_are_found(tree: Tree, number: str, disks: list[str]):
    assert [node.kernel for node in tree.queues_below(found(tree, number))] == disks


def test_a_device_stands_once_with_all_that_it_lies_on():
    assert TREE.nodes["md0"].below == ("sda", "sdb")
    assert MULTIPATH.nodes["dm-0"].below == ("sdd", "sde")


def test_a_mount_without_a_number_of_a_device_is_found_by_its_source():
    assert found(TREE, "0:45", "/dev/mapper/vg0-export").kernel == "dm-0"
    assert found(TREE, "0:45", "/dev/sdc1").kernel == "sdc1"
    assert TREE.mounted("0:34", "tm") is None


def test_what_lies_on_a_disk_is_found():
    assert [node.kernel for node in TREE.above(TREE.nodes["sda"])] == ["dm-0", "dm-1", "md0"]
    assert [node.kernel for node in MULTIPATH.above(MULTIPATH.nodes["sdd"])] == ["dm-0"]
    assert TREE.above(TREE.nodes["sdh"]) == []


def test_a_device_is_found_by_the_kernels_name_and_by_its_own():
    assert TREE.find("vg0-export") == TREE.find("dm-0")
    assert TREE.find("sdzz") is None


def test_a_host_without_block_devices_has_an_empty_tree():
    assert parse_tree('{"blockdevices": []}').nodes == {}


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "{}",
        "lsblk: invalid option -- 'J'",
        '{"blockdevices": [{"name": "sda"}]}',
        '{"blockdevices": [{"name": "a", "kname": "../a", "type": "disk", "maj:min": "8:0"}]}',
        '{"blockdevices": [{"name": "a", "kname": "-a", "type": "disk", "maj:min": "8:0"}]}',
    ],
)
def test_what_is_no_tree_is_not_understood(answer: str):
    with pytest.raises(NotUnderstood):
        parse_tree(answer)
