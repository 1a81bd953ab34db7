"""The layers of block devices on a host, from `lsblk`. No I/O.

Format: lsblk(8) of util-linux 2.27 or newer, which can print JSON.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.rows import NamedRows, Rows, join_rows, parse_each

_COLUMNS = "NAME,KNAME,TYPE,MAJ:MIN,MOUNTPOINT"
_NAME = r"^[A-Za-z][A-Za-z0-9!_-]{0,63}$"
_HINTS = (
    Hint(
        r"invalid option|unknown column|unrecognized option",
        "its lsblk is older than util-linux 2.27: Keyturn cannot read the layers of devices",
    ),
)


@dataclass(frozen=True)
class BlockDevice:
    """One block device."""

    name: str
    """The name that people use."""
    kernel_name: str
    """The name below /sys/block."""
    type: str
    """lsblk's type: disk, part, raid1, lvm, mpath, crypt, loop …"""
    device_number: str
    """Major and minor number, such as `8:1`."""
    mountpoint: str
    lower_devices: tuple[str, ...]
    """The kernel names of the devices directly below it."""

    @property
    def path(self) -> str:
        """The device file, as `mount` prints it."""
        mapped = self.kernel_name.startswith("dm-")
        return f"/dev/mapper/{self.name}" if mapped else f"/dev/{self.name.replace('!', '/')}"


@dataclass(frozen=True)
class BlockTree:
    """The block devices of a host."""

    nodes: NamedRows[str, BlockDevice]
    """By kernel name."""

    def find(self, name: str) -> BlockDevice | None:
        """Return the device with this name, or with this kernel name."""
        known = self.nodes.get(name)
        return known or next((node for node in self.nodes.values() if node.name == name), None)

    def find_mounted(self, number: str, source: str) -> BlockDevice | None:
        """Return the device of a mount by its number, or by its source (btrfs)."""
        found = [node for node in self.nodes.values() if node.device_number == number]
        return next(
            iter(found), next((node for node in self.nodes.values() if node.path == source), None)
        )

    def list_queue_devices(self, node: BlockDevice) -> list[BlockDevice]:
        """Return the devices whose queues order the requests to *node*.

        These are the disks. A multipath device orders requests in its own queue, and its paths
        pass them on.
        """
        if node.type == "mpath" or not node.lower_devices:
            return [node]
        found = {
            deeper.kernel_name: deeper
            for name in node.lower_devices
            for deeper in self.list_queue_devices(self.nodes[name])
        }
        return [found[name] for name in sorted(found)]

    def list_upper_devices(self, node: BlockDevice) -> list[BlockDevice]:
        """Return all devices above a device, directly or not."""
        direct = [each for each in self.nodes.values() if node.kernel_name in each.lower_devices]
        found = {each.kernel_name: each for each in direct}
        for each in direct:
            found |= {higher.kernel_name: higher for higher in self.list_upper_devices(each)}
        return [found[name] for name in sorted(found)]


def query_tree() -> Query[BlockTree]:
    return Query(Shell(("lsblk", "-J", "-o", _COLUMNS), hints=_HINTS), parse_tree)


class _LsblkDevice(BaseModel):
    name: str
    kname: str = Field(pattern=_NAME)
    type: str
    number: str = Field(alias="maj:min")
    mountpoint: str | None = None
    children: list[Any] = []


class _LsblkOutput(BaseModel):
    blockdevices: list[Any]


def parse_tree(answer: str) -> BlockTree:
    """Parse lsblk's JSON, where a device is a child of each device that it uses."""
    try:
        listed = _LsblkOutput.model_validate_json(answer).blockdevices
    except ValidationError:
        raise ParseError(f"lsblk printed {answer[:200]!r} instead of a tree") from None
    nodes: dict[str, BlockDevice] = {}
    found = _walk_devices(listed, "")
    for each, parent in found:
        known = nodes.get(each.kname)
        below = (known.lower_devices if known else ()) + ((parent,) if parent else ())
        nodes[each.kname] = BlockDevice(
            each.name,
            each.kname,
            each.type,
            each.number.strip(),
            each.mountpoint or "",
            tuple(dict.fromkeys(below)),
        )
    return BlockTree(NamedRows(nodes.items(), found.odd))


def _walk_devices(listed: list[Any], parent: str) -> Rows[tuple[_LsblkDevice, str]]:
    """Return each device with the kernel name of the one below it."""
    devices = parse_each(listed, _LsblkDevice.model_validate)
    deeper = [_walk_devices(each.children, each.kname) for each in devices]
    return join_rows([Rows((each, parent) for each in devices), *deeper], devices.odd)
