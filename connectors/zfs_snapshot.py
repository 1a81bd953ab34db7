"""Single snapshots of ZFS datasets. No I/O."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.rows import parse_each
from connectors.sudo import SudoRule, WordPattern
from connectors.zpool import DATASET, OUT_OF_REACH

_HINTS = (
    Hint(r"dataset does not exist|could not find", "this host has no such dataset or snapshot"),
    Hint(r"dataset already exists", "a snapshot of this name was taken meanwhile"),
    Hint(
        r"has dependent clones|dataset is busy",
        "a clone, a hold or a mount depends on the snapshot: it is not destroyed",
    ),
    Hint(r"out of space", "the pool is full"),
    *OUT_OF_REACH,
)
_LIST = ("list", "-H", "-o", "name", "-t", "filesystem,volume,snapshot", "-d", "1")


@dataclass(frozen=True)
class Snapshots:
    """A dataset's snapshots."""

    dataset: str
    names: Sequence[str]
    """What comes after the @, oldest first."""


def query_snapshots(dataset: str) -> Query[Snapshots]:
    """Query a dataset's own snapshots, not those of its children."""
    shell = Shell(("zfs", *_LIST, dataset), root=True, hints=_HINTS)
    return Query(shell, lambda answer: parse_snapshots(answer, dataset))


def parse_snapshots(answer: str, dataset: str) -> Snapshots:
    first, *lines = answer.splitlines() or [""]
    if first != dataset:
        raise ParseError(f"zfs list printed {first[:100]!r} instead of {dataset}")
    return Snapshots(dataset, parse_each(lines, lambda line: _parse_snapshot(line, dataset)))


def _parse_snapshot(line: str, dataset: str) -> str | None:
    if line.startswith(f"{dataset}/"):  # a child
        return None
    name = line.removeprefix(f"{dataset}@")
    if name == line or not re.fullmatch(r"[A-Za-z0-9_.: -]+", name, re.ASCII):
        raise ParseError("it is no snapshot")
    return name


def take_snapshot(dataset: str, name: str) -> Shell:
    return Shell(("zfs", "snapshot", f"{dataset}@{name}"), root=True, hints=_HINTS)


def destroy_snapshot(dataset: str, name: str) -> Shell:
    """Destroy one snapshot. ZFS refuses while a clone or a hold depends on it."""
    if not re.fullmatch(r"[A-Za-z0-9_.:-]+", name, re.ASCII):
        # Without a name this would destroy the dataset, and a comma or % means several snapshots.
        raise ValueError(f"{name!r} is not the name of one snapshot")
    return Shell(("zfs", "destroy", f"{dataset}@{name}"), root=True, hints=_HINTS)


_ZFS = "/usr/sbin/zfs"
_SNAPSHOT = WordPattern(rf"{DATASET}@[A-Za-z0-9][A-Za-z0-9_.:-]{{0,63}}")
SUDO = (
    SudoRule(_ZFS, *_LIST, WordPattern(DATASET), read_only=True),
    SudoRule(_ZFS, "snapshot", _SNAPSHOT),
    SudoRule(_ZFS, "destroy", _SNAPSHOT, risk="destroy single snapshots"),
)
