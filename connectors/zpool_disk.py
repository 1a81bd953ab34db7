"""Repairs of single disks of ZFS pools: replace, online, offline, clear. No I/O."""

import re

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.sudo import SudoRule, WordPattern
from connectors.zpool import OUT_OF_REACH, POOL, Pool, Vdev

_HINTS = (
    Hint(r"no such device in pool", "the pool has no such disk: zfs pools lists its disks"),
    Hint(r"no such pool", "this host has no such pool"),
    Hint(r"device is too small", "the new disk is smaller than the old one"),
    Hint(
        r"in use and contains|is part of|contains a .* filesystem|invalid vdev specification",
        "the new disk is in use, or has data on it: check that it is the right one, and wipe it",
    ),
    Hint(r"no valid replicas", "the pool has no other copy of what is on this disk"),
    Hint(r"cannot resolve path|no such device|cannot open", "the host has no such new disk"),
    *OUT_OF_REACH,
)
# What `zpool status -P` and zfs-fuse append to the path of a whole disk.
_PARTITION = r"(-part|p)?\d{1,3}"


def query_device_path(device: str) -> Query[str]:
    """Query what a path of a device leads to, such as /dev/sdc."""
    hints = (Hint(r"No such file", f"the host has no device {device}"),)
    return Query(Shell(("readlink", "-e", "--", device), hints=hints), _parse_path)


def _parse_path(answer: str) -> str:
    path = answer.removesuffix("\n")
    if not path.startswith("/"):
        raise ParseError(f"readlink printed {answer[:100]!r} instead of a path")
    return path


def replace_disk(pool: str, old: str, new: str) -> Shell:
    """Replace a disk, which copies its data in the background. ZFS refuses a disk in use."""
    return _make_command("replace", pool, old, new, deadline=120)


def bring_online(pool: str, disk: str) -> Shell:
    return _make_command("online", pool, disk)


def take_offline(pool: str, disk: str) -> Shell:
    return _make_command("offline", pool, disk)


def clear_errors(pool: str) -> Shell:
    """Clear the error counters of all disks, and resume a suspended pool."""
    return _make_command("clear", pool, deadline=120)


def find_disk(pool: Pool, name: str) -> Vdev | None:
    """Return the disk that `zpool status` calls *name*, with or without /dev/ and partition."""
    pattern = re.compile(rf"(/dev/)?{re.escape(name.removeprefix('/dev/'))}({_PARTITION})?")
    leaves = [vdev for vdev in pool.vdevs if vdev.is_leaf]
    exact = [vdev for vdev in leaves if vdev.name == name]
    return next(iter([*exact, *(vdev for vdev in leaves if pattern.fullmatch(vdev.name))]), None)


def list_disk_names(pool: Pool) -> str:
    return ", ".join(vdev.name for vdev in pool.vdevs if vdev.is_leaf)


def _make_command(*words: str, deadline: int = 60) -> Shell:
    return Shell(("zpool", *words), root=True, hints=_HINTS, deadline=deadline)


_ZPOOL = "/usr/sbin/zpool"
_POOL = WordPattern(POOL)
_PATH = r"/dev/((disk/by-[a-z]{1,12}|mapper)/)?"
_NAME = r"[A-Za-z0-9_:][A-Za-z0-9_.:+-]{0,99}"
DISK = f"({_PATH})?{_NAME}"
NEW_DISK = f"{_PATH}{_NAME}"
SUDO = (
    SudoRule(
        *(_ZPOOL, "replace", _POOL, WordPattern(DISK), WordPattern(NEW_DISK)),
        risk="overwrite an unused disk by making it part of a pool",
    ),
    SudoRule(_ZPOOL, "online", _POOL, WordPattern(DISK)),
    SudoRule(_ZPOOL, "offline", _POOL, WordPattern(DISK), risk="take single disks offline"),
    SudoRule(_ZPOOL, "clear", _POOL),
)
