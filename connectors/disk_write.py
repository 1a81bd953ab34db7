"""How fast a host writes to the file system that a directory is on, and when that was tried last.

Formats: dd of coreutils, statfs(2) by `df`, proc(5) (loadavg, pressure/io). No I/O.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.script import Script
from connectors.sudo import SudoRule, WordPattern, make_range_pattern

_MIB = 2**20
_GIB = 2**30
# MiB for one trial.
MIN_MIB, MAX_MIB = 4, 1024
# What must be free behind it, of a file system that others write to as well: bytes, and a share.
SPARE_BYTES, SPARE_SHARE = _GIB, 20
NO_DISKS = {
    "tmpfs": "is in memory and on no disk",
    "ramfs": "is in memory and on no disk",
    "devtmpfs": "is in memory and on no disk",
    "proc": "is the kernel's own",
    "sysfs": "is the kernel's own",
    "nfs": "is another host's: ask for a directory of that host",
    "nfs4": "is another host's: ask for a directory of that host",
    "cifs": "is another host's: ask for a directory of that host",
    "squashfs": "can only be read",
    "iso9660": "can only be read",
}
DIRECTORY = r"(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}){1,10}"
_RESULT = "/run/keyturn-disk-write-test"

# $1: the directory. The result of the last trial stands behind the rest.
_LOOK = Script(
    "disk-write-look",
    'cd -P -- "$1" || exit; '
    "stat -c 'owner=%u mode=%a' . && "
    'df -B1 --output=size,avail,fstype,target . | { read -r _; read -r df; echo "df=$df"; } && '
    "read -r load </proc/loadavg && "
    "echo now=$(date +%s) cpus=$(getconf _NPROCESSORS_ONLN) load=$load && "
    "{ read -r _ avg _ </proc/pressure/io || avg=; } 2>/dev/null && echo waited=${avg#avg10=} && "
    f"if [ -e {_RESULT} ]; then cat {_RESULT}; fi",
    argument_count=1,
)

# $1: the directory, $2: MiB. The file has lost its name before anything is written to it, so that
# it is gone whatever becomes of us. Where others may write to the directory, they could have put
# something else in its place, so it is root's or it is not used. What is written is random: a file
# system that packs or finds the same again would write zeros in no time.
_TRY = Script(
    "disk-write-try",
    'cd -P -- "$1" || exit; '
    'case "$2$(stat -c .%u.%A .)" in *[0-9].0.d????-??-?*) ;; '
    "*) echo 'the directory is not only root'\"'\"'s' >&2; exit 1;; esac; "
    'set -- "$1" "$2" $(df -B1 --output=size,avail,fstype . | tail -n 1); '
    f'case $5 in {"|".join(NO_DISKS)}) echo "the directory is on no disk: $5" >&2; exit 1;; esac; '
    f'spare=$(($3 / {SPARE_SHARE})); [ "$spare" -gt {SPARE_BYTES} ] || spare={SPARE_BYTES}; '
    f"[ $(($4 - $2 * {_MIB})) -ge $spare ] || "
    "{ echo 'No space left: too little would be free behind it' >&2; exit 1; }; "
    "umask 077; file=$(mktemp ./.keyturn-XXXXXXXXXX) && seed=$(mktemp ./.keyturn-XXXXXXXXXX) || "
    '{ rm -f -- "$file"; exit 1; }; '
    'exec 3> "$file" 4> "$seed" 5< "$seed"; rm -f -- "$file" "$seed"; '
    "head -c 4194304 /dev/urandom >&4 || exit; "
    "said=$(n=0; while [ $n -lt $2 ]; do cat /proc/self/fd/5; n=$((n + 4)); done "
    "| dd bs=1M count=$2 iflag=fullblock conv=fdatasync 2>&1 >&3) || "
    '{ echo "$said" >&2; exit 1; }; said=$(echo "$said" | tail -n 1); '
    f'umask 022; echo "$2 $(date +%s) $1: $said" > {_RESULT}.new && '
    f'mv {_RESULT}.new {_RESULT} && echo "$said"',
    argument_count=2,
)
_HINTS = (
    Hint(r"can't cd|No such file", "there is no such directory on the host"),
    Hint(
        r"not only root's",
        "others than root may write to this directory, and could lead the trial astray: name one "
        "on the same disk that is root's",
    ),
    Hint(r"No space left", "the file system has no room for it"),
    Hint(r"Read-only", "this file system is mounted so that it can only be read"),
    Hint(r"[Pp]ermission denied", "only root may do this: the login's sudo rule is missing"),
)


@dataclass(frozen=True)
class WriteResult:
    """What was written where, in how many seconds, flushed to the disk included."""

    directory: str
    mib: int
    ended_at: datetime
    seconds: float

    def __str__(self) -> str:
        speed = self.mib / self.seconds if self.seconds else 0.0
        return (
            f"{self.mib} MiB were written to {self.directory} in {self.seconds:.2f} s, "
            f"{speed:,.0f} MiB/s, at {self.ended_at:%Y-%m-%d %H:%M:%S UTC}"
        )


@dataclass(frozen=True)
class DirectoryState:
    """A directory and the state of its host. size, free: bytes of its file system.

    of_root: nobody else can change what is in it. load: programs that run or wait, over one
    minute. waited: percent of ten seconds that some program waited for disks; None if the kernel
    does not count it. last: of the last trial on this host since it was started.
    """

    is_root_owned: bool
    size_bytes: int
    free_bytes: int
    filesystem: str
    mount: str
    host_time: datetime
    cpus: int
    load: float
    io_wait: float | None
    last_result: WriteResult | None = None


def query_directory(directory: str) -> Query[DirectoryState]:
    return Query(Shell((_LOOK, directory), root=True, hints=_HINTS), parse_directory)


def write_test_file(directory: str, *, mib: int, seconds: int) -> Shell:
    """Write so much to a file without a name, wait for the disk, and keep how long it took."""
    return Shell((_TRY, directory, str(mib)), root=True, hints=_HINTS, deadline=seconds)


def delete_result() -> Shell:
    """Take away what is kept of the last trial."""
    return Shell(("rm", "-f", "--", _RESULT), root=True)


def parse_directory(answer: str) -> DirectoryState:
    told = re.fullmatch(
        r"owner=(?P<owner>\d+) mode=(?P<mode>[0-7]+)\n"
        r"df=(?P<size>\d+)\s+(?P<free>\d+)\s+(?P<type>\S+)\s+(?P<mount>/.*)\n"
        r"now=(?P<now>\d{1,11}) cpus=(?P<cpus>\d+) load=(?P<load>[\d.]+) .*\n"
        r"waited=(?P<waited>[\d.]*)\n"
        r"(?P<last>.*\n)?",
        answer,
        re.ASCII,
    )
    if told is None:
        raise ParseError(f"the host answered {answer[:300]!r} about the directory")
    return _make_directory_state(told.groupdict(""))


def _make_directory_state(told: Mapping[str, str]) -> DirectoryState:
    return DirectoryState(
        is_root_owned=told["owner"] == "0" and not int(told["mode"], 8) & 0o022,
        size_bytes=int(told["size"]),
        free_bytes=int(told["free"]),
        filesystem=told["type"],
        mount=told["mount"],
        host_time=datetime.fromtimestamp(int(told["now"]), UTC),
        cpus=int(told["cpus"]),
        load=float(told["load"]),
        io_wait=float(told["waited"]) if told["waited"] else None,
        last_result=_parse_result(told["last"].strip()) if told["last"] else None,
    )


def _parse_result(line: str) -> WriteResult:
    found = re.fullmatch(
        r"(\d+) (\d{1,11}) (/.*): (\d+) bytes .*copied, ([\d.e-]+) s, .*", line, re.ASCII
    )
    if found is None or int(found[4]) != int(found[1]) * _MIB:
        raise ParseError(f"{_RESULT} holds {line[:200]!r}: take that file away")
    ended = datetime.fromtimestamp(int(found[2]), UTC)
    return WriteResult(found[3], int(found[1]), ended, float(found[5]))


_DIRECTORY = WordPattern(DIRECTORY)
SUDO = (
    SudoRule(_LOOK, _DIRECTORY, read_only=True),
    SudoRule(
        _TRY,
        _DIRECTORY,
        WordPattern(make_range_pattern(MIN_MIB, MAX_MIB)),
        risk=f"write up to {MAX_MIB} MiB at a time to a disk with room, as often as they like",
    ),
    SudoRule("/usr/bin/rm", "-f", "--", _RESULT),
)
