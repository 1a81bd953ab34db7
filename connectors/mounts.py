"""NFS exports of a host, and the mount of a path. No I/O.

Formats: exportfs(8) with `-s`, findmnt(8) of util-linux 2.27 or newer.
"""

import re
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each
from connectors.sudo import SudoRule
from connectors.visible_text import refuse_invisible

_NO_EXPORTFS = Hint(
    r"exportfs.*(not found|No such file)",
    "exportfs is missing, so the host's kernel exports nothing: install nfs-kernel-server or "
    "nfs-utils",
)
# Without the right to lock the table, exportfs prints an error and exits with status 0.
_EXPORTFS_ERROR = r"could not open|Permission denied"
_EXPORT = re.compile(r"(/\S*)  (\S+)\(([^()]*)\)")
_NOT_THERE = Hint(r"\A\Z", "the host has no such path")


@dataclass(frozen=True)
class Export:
    """A directory that is exported to some clients, with their options."""

    path: str
    clients: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Mount:
    """A mounted file system."""

    target: str
    """Where it is mounted."""
    source: str
    """The device's path, for file systems on disks."""
    type: str
    device_number: str
    """Major and minor number, such as `8:1`."""


def query_exports() -> Query[tuple[Export, ...]]:
    shell = Shell(
        ("exportfs", "-s"), root=True, error_pattern=_EXPORTFS_ERROR, hints=(_NO_EXPORTFS,)
    )
    return Query(shell, parse_exports)


def parse_exports(answer: str) -> Rows[Export]:
    """Parse `PATH  CLIENTS(OPTIONS)` lines; blanks in paths are escaped as `\\040`."""
    return parse_each(filter(None, answer.splitlines()), _parse_export)


def _parse_export(line: str) -> Export:
    match = _EXPORT.fullmatch(line)
    if match is None:
        raise ParseError("it is no export")
    return Export(_unescape_path(match[1]), match[2], tuple(match[3].split(",")))


def _unescape_path(path: str) -> str:
    read = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 255]), path.encode())
    try:
        return refuse_invisible(read.decode())
    except ValueError:
        raise ParseError("its path has an unreadable name") from None


def query_mount(path: str) -> Query[Mount]:
    """Query the mount of a path that the host has printed."""
    columns = "TARGET,SOURCE,FSTYPE,MAJ:MIN"
    # -v omits the suffix of the source for btrfs and bind mounts, such as [/subvolume].
    shell = Shell(("findmnt", "-J", "-v", "-o", columns, "-T", path), hints=(_NOT_THERE,))
    return Query(shell, parse_mount)


class _FindmntFilesystem(BaseModel):
    target: str
    source: str
    fstype: str
    number: str = Field(alias="maj:min")


class _FindmntOutput(BaseModel):
    filesystems: list[_FindmntFilesystem] = Field(min_length=1, max_length=1)


def parse_mount(answer: str) -> Mount:
    try:
        (filesystem,) = _FindmntOutput.model_validate_json(answer).filesystems
    except ValidationError:
        raise ParseError(f"findmnt printed {answer[:200]!r} instead of one mount") from None
    return Mount(
        filesystem.target, filesystem.source, filesystem.fstype, filesystem.number.strip()
    )


SUDO = (SudoRule("/usr/sbin/exportfs", "-s", read_only=True),)
