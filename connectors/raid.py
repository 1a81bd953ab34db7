"""Linux software RAID: what the kernel and `mdadm` tell of each array. No I/O.

Formats: md(4), mdadm(8). What is under way is read from the kernel, the members from mdadm.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.sudo import SudoRule, WordPattern

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
class ArrayProgress:
    """What runs over a whole array. minutes: how long it has still to go. speed: KiB/s."""

    action: str
    percent: float
    minutes_left: float
    speed: int


@dataclass(frozen=True)
class RaidArray:
    """One array as /proc/mdstat tells it.

    level: "" while it is not active. wanted, working: members, None where the level has no
    spare ones to lose. waiting: a resync stands still until something else has ended.
    """

    name: str
    is_active: bool
    level: str
    is_read_only: bool = False
    member_count: int | None = None
    working_count: int | None = None
    progress: ArrayProgress | None = None
    is_waiting: bool = False

    @property
    def is_degraded(self) -> bool:
        return (
            self.member_count is not None
            and self.working_count is not None
            and self.working_count < self.member_count
        )


@dataclass(frozen=True)
class ArrayDetail:
    """What mdadm adds. members: each with its state, such as ("/dev/sda", "active sync").

    A member that is missing has the state "removed" and no name.
    """

    level: str
    state: str
    layout: str
    chunk: str
    members: tuple[tuple[str, str], ...]


def query_arrays() -> Query[tuple[RaidArray, ...]]:
    """Query every array. A kernel whose md driver was never loaded has no such file."""
    script = "if [ -e /proc/mdstat ]; then exec cat /proc/mdstat; fi"
    return Query(Shell(("sh", "-c", script, "keyturn")), parse_arrays)


def query_detail(name: str) -> Query[ArrayDetail]:
    """Query mdadm about one array, by the name that the kernel told."""
    return Query(
        Shell(("mdadm", "--detail", f"/dev/{name}"), root=True, hints=_HINTS), parse_detail
    )


def query_mismatches(names: Iterable[str]) -> Query[Mapping[str, int]]:
    """Query how many sectors differed in the last check of each array that can be checked."""
    files = tuple(f"/sys/block/{name}/md/mismatch_cnt" for name in names)
    return Query(
        Shell(("grep", "-s", "-H", "^", "--", *files)), parse_mismatches, frozenset({0, 1, 2})
    )


def parse_arrays(answer: str) -> tuple[RaidArray, ...]:
    if answer and not answer.startswith("Personalities :"):
        raise ParseError(f"/proc/mdstat begins with {answer[:80]!r}")
    blocks = re.split(r"(?m)^(?=md)", answer)[1:]
    return tuple(_parse_array(block.split("\nunused devices:")[0]) for block in blocks)


def _parse_array(block: str) -> RaidArray:
    first, *rest = block.splitlines()
    match = _ARRAY.match(first)
    if match is None:
        raise ParseError(f"/proc/mdstat holds {first[:200]!r}, which is no array")
    more = "\n".join(rest)
    counts, progress = _COUNTS.search(more), _PROGRESS.search(more)
    return RaidArray(
        name=match["name"],
        is_active=match["state"] == "active",
        level=match["level"] or "",
        is_read_only=bool(match["only"]),
        member_count=int(counts[1]) if counts else None,
        working_count=int(counts[2]) if counts else None,
        progress=_make_progress(progress) if progress else None,
        is_waiting=bool(_WAITING.search(more)),
    )


def _make_progress(match: re.Match[str]) -> ArrayProgress:
    return ArrayProgress(
        match["action"], float(match["percent"]), float(match["minutes"]), int(match["speed"])
    )


def parse_detail(answer: str) -> ArrayDetail:
    """Read `KEY : VALUE` lines, then the table of members."""
    told = dict(re.findall(r"(?m)^ *([A-Z][A-Za-z ]*?) : (.*?) *$", answer))
    _, head, table = answer.partition("RaidDevice State\n")
    if not head or not {"Raid Level", "State"} <= told.keys():
        raise ParseError(f"mdadm answered {answer[:200]!r}, which is no array's detail")
    return ArrayDetail(
        level=told["Raid Level"],
        state=told["State"],
        layout=told.get("Layout", "").replace("-unknown-", ""),
        chunk=told.get("Chunk Size", ""),
        members=tuple(_parse_member(line) for line in table.splitlines() if line.strip()),
    )


def _parse_member(line: str) -> tuple[str, str]:
    match = _MEMBER.match(line)
    if match is None:
        raise ParseError(f"mdadm told {line[:200]!r}, which is no member of an array")
    state, slash, device = match["state"].partition("/dev/")
    return (slash + device, state.strip())


def parse_mismatches(answer: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for line in answer.splitlines():
        match = re.fullmatch(r"/sys/block/([A-Za-z0-9_]+)/md/mismatch_cnt:(\d+)", line)
        if match is None:
            raise ParseError(f"{line[:200]!r} is no count of mismatches")
        found[match[1]] = int(match[2])
    return found


SUDO = (
    SudoRule("/usr/sbin/mdadm", "--detail", WordPattern(r"/dev/md[A-Za-z0-9_]*"), read_only=True),
)
