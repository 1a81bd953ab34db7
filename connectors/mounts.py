"""What a host exports by NFS, and which mount a path lies on. No I/O.

Formats: exportfs(8) with `-s`, findmnt(8) of util-linux 2.27 or newer.
"""

import re
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError

from connectors.command import Hint, Query, Shell, refuse_invisible
from connectors.errors import ParseError
from connectors.sudo import SudoRule

_NO_EXPORTFS = Hint(
    r"exportfs.*(not found|No such file)",
    "the host has no exportfs: it exports nothing from its kernel (package nfs-kernel-server "
    "or nfs-utils)",
)
# A login that may not lock the table is told so, with status 0 and no exports.
_EXPORTFS_TROUBLE = r"could not open|Permission denied"
_EXPORT = re.compile(r"(/\S*)  (\S+)\(([^()]*)\)")
_NOT_THERE = Hint(r"\A\Z", "there is no such path on the host")


@dataclass(frozen=True)
class Export:
    """A directory that is offered to some clients, with the options for them."""

    path: str
    clients: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Mount:
    """source: a device's path for file systems on disks. number: major and minor."""

    target: str
    source: str
    type: str
    device_number: str


def query_exports() -> Query[tuple[Export, ...]]:
    shell = Shell(
        ("exportfs", "-s"), root=True, error_pattern=_EXPORTFS_TROUBLE, hints=(_NO_EXPORTFS,)
    )
    return Query(shell, parse_exports)


def parse_exports(answer: str) -> tuple[Export, ...]:
    """Read `PATH  CLIENTS(OPTIONS)` lines; blanks and the like in paths are written `\\040`."""
    found: list[Export] = []
    for line in filter(None, answer.splitlines()):
        match = _EXPORT.fullmatch(line)
        if match is None:
            raise ParseError(f"exportfs answered {line[:200]!r}, which is no export")
        found.append(Export(_unescape_path(match[1]), match[2], tuple(match[3].split(","))))
    return tuple(found)


def _unescape_path(path: str) -> str:
    read = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 255]), path.encode())
    try:
        return refuse_invisible(read.decode())
    except ValueError:
        raise ParseError(f"the export {path[:200]!r} has a name that nobody can read") from None


def query_mount(path: str) -> Query[Mount]:
    """Query on which mount a path lies. The path is one that the host told."""
    columns = "TARGET,SOURCE,FSTYPE,MAJ:MIN"
    # -v leaves out what btrfs and bind mounts write behind the source, such as [/subvolume].
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
        (told,) = _FindmntOutput.model_validate_json(answer).filesystems
    except ValidationError:
        raise ParseError(f"findmnt answered {answer[:200]!r} instead of one mount") from None
    return Mount(told.target, told.source, told.fstype, told.number.strip())


SUDO = (SudoRule("/usr/sbin/exportfs", "-s", read_only=True),)
