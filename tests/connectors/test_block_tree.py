import pytest

from connectors.block_tree import BlockDevice, BlockTree, parse_tree
from tests.connectors.storage import recorded
from tests.connectors.understanding import is_understood

TREE = parse_tree(recorded("lsblk"))
MULTIPATH = parse_tree(recorded("lsblk-multipath"))


def find_mounted(tree: BlockTree, number: str, source: str = "") -> BlockDevice:
    node = tree.find_mounted(number, source)
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
def test_block_tree_finds_the_disks_behind_a_mount(tree: BlockTree, number: str, disks: list[str]):
    assert [
        node.kernel_name for node in tree.list_queue_devices(find_mounted(tree, number))
    ] == disks


def test_block_tree_lists_a_device_once_with_all_its_lower_devices():
    assert TREE.nodes["md0"].lower_devices == ("sda", "sdb")
    assert MULTIPATH.nodes["dm-0"].lower_devices == ("sdd", "sde")


def test_block_tree_finds_a_mount_without_a_device_number_by_its_source():
    assert find_mounted(TREE, "0:45", "/dev/mapper/vg0-export").kernel_name == "dm-0"
    assert find_mounted(TREE, "0:45", "/dev/sdc1").kernel_name == "sdc1"
    assert TREE.find_mounted("0:34", "tm") is None


def test_block_tree_lists_the_upper_devices_of_a_disk():
    assert [node.kernel_name for node in TREE.list_upper_devices(TREE.nodes["sda"])] == [
        "dm-0",
        "dm-1",
        "md0",
    ]
    assert [node.kernel_name for node in MULTIPATH.list_upper_devices(MULTIPATH.nodes["sdd"])] == [
        "dm-0"
    ]
    assert TREE.list_upper_devices(TREE.nodes["sdh"]) == []


def test_block_tree_finds_a_device_by_kernel_name_and_mapper_name():
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
def test_invalid_block_tree_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_tree(answer))
