"""Linux software RAID: what the kernel and `mdadm` tell of each array. No I/O.

Formats: md(4), mdadm(8). What is under way is read from the kernel, the members from mdadm.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.sudo import Fits, SudoRule
from connectors.trouble import NotUnderstood

_HINTS = (
    Hint(r"must be super-user", "mdadm needs root: the login's sudo rule for it is missing"),
    Hint(r"cannot open /dev/", "the array is gone"),
    Hint(r"mdadm.*(not found|No such file)|run command .mdadm", "install mdadm on the host"),
)

_ARRAY = re.compile(
    r"^(?P<name>md[A-Za-z0-9_]*) : (?P<state>active|inactive)(?: \((?P<only>[a-z-]+)\))?"
    r"(?: (?P<level>[a-z][a-z0-9]*))?(?P<members>(?: [A-Za-z0-9!_-]+\[\d+\](?:\([A-Z]\))*)*)$"
)
_PROGRESS = re.compile(
    r"(?P<action>resync|recovery|check|repair|reshape) ?= *(?P<percent>[\d.]+)% "
    r"\(\d+/\d+\) finish=(?P<minutes>[\d.]+)min speed=(?P<speed>\d+)K/sec"
)
_WAITING = re.compile(r"(resync|recovery|reshape) ?= ?(DELAYED|PENDING|REMOTE)")
_COUNTS = re.compile(r"\[(\d+)/(\d+)\] \[[U_]+\]")
_MEMBER = re.compile(r"^\s+(?:\d+|-)\s+\d+\s+\d+\s+(?:\d+|-)\s+(?P<state>\S.*?)\s*$")


@dataclass(frozen=True)
class Progress:
    """What runs over a whole array. minutes: how long it has still to go. speed: KiB/s."""

    action: str
    percent: float
    minutes: float
    speed: int


@dataclass(frozen=True)
class Array:
    """One array as /proc/mdstat tells it.

    level: "" while it is not active. wanted, working: members, None where the level has no
    spare ones to lose. waiting: a resync stands still until something else has ended.
    """

    name: str
    active: bool
    level: str
    read_only: bool = False
    wanted: int | None = None
    working: int | None = None
    progress: Progress | None = None
    waiting: bool = False

    @property
    def degraded(self) -> bool:
        return self.wanted is not None and self.working is not None and self.working < self.wanted


@dataclass(frozen=True)
class Detail:
    """What mdadm adds. members: each with its state, such as ("/dev/sda", "active sync").

    A member that is missing has the state "removed" and no name.
    """

    level: str
    state: str
    layout: str
    chunk: str
    members: tuple[tuple[str, str], ...]


def arrays() -> Query[tuple[Array, ...]]:
    """Ask for every array. A kernel whose md driver was never loaded has no such file."""
    script = "if [ -e /proc/mdstat ]; then exec cat /proc/mdstat; fi"
    return Query(Shell(("sh", "-c", script, "keyturn")), parse_arrays)


def detail(name: str) -> Query[Detail]:
    """Ask mdadm about one array, by the name that the kernel told."""
    return Query(
        Shell(("mdadm", "--detail", f"/dev/{name}"), root=True, hints=_HINTS), parse_detail
    )


def mismatches(names: Iterable[str]) -> Query[Mapping[str, int]]:
    """Ask how many sectors differed in the last check of each array that can be checked."""
    files = tuple(f"/sys/block/{name}/md/mismatch_cnt" for name in names)
    return Query(
        Shell(("grep", "-s", "-H", "^", "--", *files)), parse_mismatches, frozenset({0, 1, 2})
    )


def parse_arrays(answer: str) -> tuple[Array, ...]:
    if answer and not answer.startswith("Personalities :"):
        raise NotUnderstood(f"/proc/mdstat begins with {answer[:80]!r}")
    blocks = re.split(r"(?m)^(?=md)", answer)[1:]
    return tuple(_array(block.split("\nunused devices:")[0]) for block in blocks)


def _array(block: str) -> Array:
    first, *rest = block.splitlines()
    match = _ARRAY.match(first)
    if match is None:
        raise NotUnderstood(f"/proc/mdstat holds {first[:200]!r}, which is no array")
    more = "\n".join(rest)
    counts, progress = _COUNTS.search(more), _PROGRESS.search(more)
    return Array(
        name=match["name"],
        active=match["state"] == "active",
        level=match["level"] or "",
        read_only=bool(match["only"]),
        wanted=int(counts[1]) if counts else None,
        working=int(counts[2]) if counts else None,
        progress=_progress(progress) if progress else None,
        waiting=bool(_WAITING.search(more)),
    )


def _progress(match: re.Match[str]) -> Progress:
    return Progress(
        match["action"], float(match["percent"]), float(match["minutes"]), int(match["speed"])
    )


def parse_detail(answer: str) -> Detail:
    """Read `KEY : VALUE` lines, then the table of members."""
    told = dict(re.findall(r"(?m)^ *([A-Z][A-Za-z ]*?) : (.*?) *$", answer))
    _, head, table = answer.partition("RaidDevice State\n")
    if not head or not {"Raid Level", "State"} <= told.keys():
        raise NotUnderstood(f"mdadm answered {answer[:200]!r}, which is no array's detail")
    return Detail(
        level=told["Raid Level"],
        state=told["State"],
        layout=told.get("Layout", "").replace("-unknown-", ""),
        chunk=told.get("Chunk Size", ""),
        members=tuple(_member(line) for line in table.splitlines() if line.strip()),
    )


def _member(line: str) -> tuple[str, str]:
    match = _MEMBER.match(line)
    if match is None:
        raise NotUnderstood(f"mdadm told {line[:200]!r}, which is no member of an array")
    state, slash, device = match["state"].partition("/dev/")
    return (slash + device, state.strip())


def parse_mismatches(answer: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for line in answer.splitlines():
        match = re.fullmatch(r"/sys/block/([A-Za-z0-9_]+)/md/mismatch_cnt:(\d+)", line)
        if match is None:
            raise NotUnderstood(f"{line[:200]!r} is no count of mismatches")
        found[match[1]] = int(match[2])
    return found


SUDO = (SudoRule("/usr/sbin/mdadm", "--detail", Fits(r"/dev/md[A-Za-z0-9_]*"), reads=True),)
