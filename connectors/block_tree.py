"""Which block device lies on which, as `lsblk` draws it. No I/O.

Format: lsblk(8) of util-linux 2.27 or newer, which can answer in JSON.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError

from connectors.command import Hint, Query, Shell
from connectors.trouble import NotUnderstood

_COLUMNS = "NAME,KNAME,TYPE,MAJ:MIN,MOUNTPOINT"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9!_-]{0,63}", re.ASCII)
_HINTS = (
    Hint(
        r"invalid option|unknown column|unrecognized option",
        "its lsblk is older than util-linux 2.27 and cannot tell what lies on what",
    ),
)


@dataclass(frozen=True)
class Node:
    """One block device. name: as people call it. kernel: the name below /sys/block.

    type: as lsblk calls it: disk, part, raid1, lvm, mpath, crypt, loop … below: the kernel's
    names of what it lies on. number: major and minor, such as `8:1`.
    """

    name: str
    kernel: str
    type: str
    number: str
    mountpoint: str
    below: tuple[str, ...]

    @property
    def path(self) -> str:
        """Where the device is found, as `mount` would tell it."""
        mapped = self.kernel.startswith("dm-")
        return f"/dev/mapper/{self.name}" if mapped else f"/dev/{self.name.replace('!', '/')}"


class Tree:
    """The block devices of a host, by the kernel's names."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes

    def find(self, name: str) -> Node | None:
        """Return the device that the kernel or people call so."""
        known = self.nodes.get(name)
        return known or next((node for node in self.nodes.values() if node.name == name), None)

    def mounted(self, number: str, source: str) -> Node | None:
        """Return the device behind a mount. btrfs tells numbers of its own, so by source too."""
        found = [node for node in self.nodes.values() if node.number == number]
        return next(
            iter(found), next((node for node in self.nodes.values() if node.path == source), None)
        )

    def queues_below(self, node: Node) -> list[Node]:
        """Return the devices whose queues order what goes to *node*.

        These are the disks; but what goes to a multipath device is ordered in its own queue, and
        the paths take it as it comes.
        """
        if node.type == "mpath" or not node.below:
            return [node]
        found = {
            deeper.kernel: deeper
            for name in node.below
            for deeper in self.queues_below(self.nodes[name])
        }
        return [found[name] for name in sorted(found)]

    def above(self, node: Node) -> list[Node]:
        """Return what lies on a device, directly or not."""
        direct = [each for each in self.nodes.values() if node.kernel in each.below]
        found = {each.kernel: each for each in direct}
        for each in direct:
            found |= {higher.kernel: higher for higher in self.above(each)}
        return [found[name] for name in sorted(found)]


def tree() -> Query[Tree]:
    return Query(Shell(("lsblk", "-J", "-o", _COLUMNS), hints=_HINTS), parse_tree)


class _Told(BaseModel):
    name: str
    kname: str
    type: str
    number: str = Field(alias="maj:min")
    mountpoint: str | None = None
    children: list["_Told"] = []


class _Answer(BaseModel):
    blockdevices: list[_Told]


def parse_tree(answer: str) -> Tree:
    """Read lsblk's JSON, where a device stands below each of those that it lies on."""
    try:
        told = _Answer.model_validate_json(answer).blockdevices
    except ValidationError:
        raise NotUnderstood(f"lsblk answered {answer[:200]!r}, which is no tree") from None
    nodes: dict[str, Node] = {}
    for each, parent in _walk(told, None):
        if not _NAME.fullmatch(each.kname):
            raise NotUnderstood(f"lsblk names a device {each.kname[:80]!r}")
        known = nodes.get(each.kname)
        below = (known.below if known else ()) + ((parent.kname,) if parent else ())
        nodes[each.kname] = Node(
            each.name,
            each.kname,
            each.type,
            each.number.strip(),
            each.mountpoint or "",
            tuple(dict.fromkeys(below)),
        )
    return Tree(nodes)


def _walk(told: list[_Told], parent: _Told | None) -> Iterator[tuple[_Told, _Told | None]]:
    for each in told:
        yield each, parent
        yield from _walk(each.children, each)
