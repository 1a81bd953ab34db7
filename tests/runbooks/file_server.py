"""A scripted fleet with a file server that has every kind of disk."""

from collections.abc import Mapping

from connectors import block, block_tree, iostat, mounts
from tests.connectors.storage import recorded
from tests.scripted_fleet import Replies, ScriptedFleet

MOUNTS = {
    "/export/projects": "lvm",
    "/export/with space": "lvm",
    "/export/fast": "nvme",
    "/export/home/sub": "part",
    "/srv/onroot": "tmpfs",
}
QUEUES = recorded("queues-linux-6.1")
LOAD = recorded("iostat-12.6-json")


def only(device: str) -> str:
    """Return the recorded queue settings of one device."""
    begin = f"/sys/block/{device}/"
    return "".join(line + "\n" for line in QUEUES.splitlines() if line.startswith(begin))


def like_sda(device: str) -> str:
    """Return the queue settings of a disk of the same kind as sda."""
    return only("sda").replace("/sda/", f"/{device}/")


def build_file_server_fleet(answers: Mapping[str, Replies] | None = None) -> ScriptedFleet:
    """Return a fleet whose nas1 exports from LVM on a RAID 1, NVMe, a partition and memory.

    answers: further answers by command.
    """
    fleet = ScriptedFleet(hosts=["nas1"])
    listed = recorded("exportfs-s").splitlines()
    exports = "".join(line + "\n" for line in listed if "/mp" not in line)
    fleet.script("nas1", mounts.query_exports().command, exports)
    for path, kind in MOUNTS.items():
        fleet.script("nas1", mounts.query_mount(path).command, recorded(f"findmnt-{kind}"))
    fleet.script("nas1", block_tree.query_tree().command, recorded("lsblk"))
    fleet.script("nas1", iostat.query_json(1).command, LOAD)
    for command, replies in (answers or {}).items():
        fleet.script("nas1", command, replies)
    return fleet


def queues(*devices: str) -> str:
    """Return the command that reads the queues of these devices."""
    return str(block.query_queues(devices).command)
