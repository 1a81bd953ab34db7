"""Disk write test: how fast a host writes to a directory's file system, and the last result.

Formats: dd of coreutils, statfs(2) by `df`, proc(5) (loadavg, pressure/io). No I/O.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern, make_range_pattern

_MIB = 2**20
_GIB = 2**30
# MiB for one test.
MIN_MIB, MAX_MIB = 4, 1024
# What must stay free, as others write to the file system as well: bytes, and a share of it.
SPARE_BYTES, SPARE_SHARE = _GIB, 20
NO_DISKS = {
    "tmpfs": "is in memory and on no disk",
    "ramfs": "is in memory and on no disk",
    "devtmpfs": "is in memory and on no disk",
    "proc": "belongs to the kernel",
    "sysfs": "belongs to the kernel",
    "nfs": "belongs to another host: test a directory there",
    "nfs4": "belongs to another host: test a directory there",
    "cifs": "belongs to another host: test a directory there",
    "squashfs": "is read-only",
    "iso9660": "is read-only",
}
DIRECTORY = r"(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}){1,10}"
_RESULT = "/run/keyturn-disk-write-test"

_LOOK = load_script("disk-write-look", argument_count=1, RESULT=_RESULT)
_TRY = load_script(
    "disk-write-try",
    argument_count=2,
    RESULT=_RESULT,
    NO_DISKS=" ".join(NO_DISKS),
    SPARE_BYTES=SPARE_BYTES,
    SPARE_SHARE=SPARE_SHARE,
)
_HINTS = (
    Hint(r"can't cd|No such file", "the host has no such directory"),
    Hint(
        r"others than root can write",
        "others than root can write to this directory and could redirect the test: choose a "
        "directory on the same disk that only root can write to",
    ),
    Hint(r"No space left", "the file system has too little free space"),
    Hint(r"Read-only", "this file system is mounted read-only"),
    Hint(r"[Pp]ermission denied", "this requires root: add the login's sudo rule"),
)


@dataclass(frozen=True)
class WriteResult:
    """The result of one test."""

    directory: str
    mib: int
    """How much was written."""
    ended_at: datetime
    seconds: float
    """How long it took, including the flush to disk."""

    def __str__(self) -> str:
        speed = self.mib / self.seconds if self.seconds else 0.0
        return (
            f"wrote {self.mib} MiB to {self.directory} in {self.seconds:.2f} s, "
            f"{speed:,.0f} MiB/s, at {self.ended_at:%Y-%m-%d %H:%M:%S UTC}"
        )


@dataclass(frozen=True)
class DirectoryState:
    """A directory, its file system, and the load of its host."""

    is_root_owned: bool
    """Whether only root can change what is in it."""
    size_bytes: int
    """Size of its file system."""
    free_bytes: int
    """Free bytes of its file system."""
    filesystem: str
    """Type of its file system."""
    mount: str
    """Where its file system is mounted."""
    host_time: datetime
    """The host's clock."""
    cpus: int
    load: float
    """Programs that run or wait, averaged over one minute."""
    io_wait: float | None
    """Percent of ten seconds in which a program waited for I/O; None without that counter."""
    last_result: WriteResult | None = None
    """The last test on this host since it booted."""


def query_directory(directory: str) -> Query[DirectoryState]:
    return Query(Shell((_LOOK, directory), root=True, hints=_HINTS), parse_directory)


def write_test_file(directory: str, *, mib: int, seconds: int) -> Shell:
    """Write *mib* MiB to an unlinked file, flush it, and store how long it took."""
    return Shell((_TRY, directory, str(mib)), root=True, hints=_HINTS, deadline=seconds)


def delete_result() -> Shell:
    """Delete the stored result of the last test."""
    return Shell(("rm", "-f", "--", _RESULT), root=True)


def parse_directory(answer: str) -> DirectoryState:
    fields = re.fullmatch(
        r"owner=(?P<owner>\d+) mode=(?P<mode>[0-7]+)\n"
        r"df=(?P<size>\d+)\s+(?P<free>\d+)\s+(?P<type>\S+)\s+(?P<mount>/.*)\n"
        r"now=(?P<now>\d{1,11}) cpus=(?P<cpus>\d+) load=(?P<load>[\d.]+) .*\n"
        r"waited=(?P<waited>[\d.]*)\n"
        r"(?P<last>.*\n)?",
        answer,
        re.ASCII,
    )
    if fields is None:
        raise ParseError(f"the host printed {answer[:300]!r} instead of the directory's state")
    return _make_directory_state(fields.groupdict(""))


def _make_directory_state(fields: Mapping[str, str]) -> DirectoryState:
    return DirectoryState(
        is_root_owned=fields["owner"] == "0" and not int(fields["mode"], 8) & 0o022,
        size_bytes=int(fields["size"]),
        free_bytes=int(fields["free"]),
        filesystem=fields["type"],
        mount=fields["mount"],
        host_time=datetime.fromtimestamp(int(fields["now"]), UTC),
        cpus=int(fields["cpus"]),
        load=float(fields["load"]),
        io_wait=float(fields["waited"]) if fields["waited"] else None,
        last_result=_parse_result(fields["last"].strip()) if fields["last"] else None,
    )


def _parse_result(line: str) -> WriteResult:
    found = re.fullmatch(
        r"(\d+) (\d{1,11}) (/.*): (\d+) bytes .*copied, ([\d.e-]+) s, .*", line, re.ASCII
    )
    if found is None or int(found[4]) != int(found[1]) * _MIB:
        raise ParseError(f"{_RESULT} has an unknown line: {line[:200]!r}. Remove that file")
    ended = datetime.fromtimestamp(int(found[2]), UTC)
    return WriteResult(found[3], int(found[1]), ended, float(found[5]))


_DIRECTORY = WordPattern(DIRECTORY)
SUDO = (
    SudoRule(_LOOK, _DIRECTORY, read_only=True),
    SudoRule(
        _TRY,
        _DIRECTORY,
        WordPattern(make_range_pattern(MIN_MIB, MAX_MIB)),
        risk=f"write up to {MAX_MIB} MiB at a time to a disk with free space, repeatedly",
    ),
    SudoRule("/usr/bin/rm", "-f", "--", _RESULT),
)
