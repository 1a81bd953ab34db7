"""Linux software RAID: arrays, their members and their progress. No I/O.

Formats: md(4), mdadm(8). State and progress come from the kernel, the members from mdadm.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.sudo import SudoRule, WordPattern

_HINTS = (
    Hint(r"must be super-user", "mdadm requires root: add the login's sudo rule"),
    Hint(r"cannot open /dev/", "the array does not exist any more"),
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
    """A resync, check or similar that is running on an array."""

    action: str
    """resync, recovery, check, repair or reshape."""
    percent: float
    minutes_left: float
    speed: int
    """KiB/s."""


@dataclass(frozen=True)
class RaidArray:
    """One array in /proc/mdstat."""

    name: str
    is_active: bool
    level: str
    """Empty while it is not active."""
    is_read_only: bool = False
    member_count: int | None = None
    """How many members it should have; None for a level without redundancy."""
    working_count: int | None = None
    """How many members work; None for a level without redundancy."""
    progress: ArrayProgress | None = None
    is_waiting: bool = False
    """Whether a resync waits for another one to end."""

    @property
    def is_degraded(self) -> bool:
        return (
            self.member_count is not None
            and self.working_count is not None
            and self.working_count < self.member_count
        )


@dataclass(frozen=True)
class ArrayDetail:
    """The details of one array that mdadm prints."""

    level: str
    state: str
    layout: str
    chunk: str
    members: tuple[tuple[str, str], ...]
    """Each device with its state, such as ("/dev/sda", "active sync").

    A missing member has the state "removed" and no name.
    """


def query_arrays() -> Query[tuple[RaidArray, ...]]:
    """Query all arrays. A kernel that never loaded the md driver has no such file."""
    script = "if [ -e /proc/mdstat ]; then exec cat /proc/mdstat; fi"
    return Query(Shell(("sh", "-c", script, "keyturn")), parse_arrays)


def query_detail(name: str) -> Query[ArrayDetail]:
    """Query mdadm's details of one array, by its kernel name."""
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
        raise ParseError(f"/proc/mdstat has an unknown format: {answer[:80]!r}")
    blocks = re.split(r"(?m)^(?=md)", answer)[1:]
    return tuple(
        _parse_array(block.split("\nunused devices:")[0])
        for block in blocks
        # A container of Intel's or DDF's arrays is never active; its arrays name it.
        if not re.search(r" super external:[a-z]", block)
    )


def _parse_array(block: str) -> RaidArray:
    first, *rest = block.splitlines()
    match = _ARRAY.match(first)
    if match is None:
        raise ParseError(f"/proc/mdstat has {first[:200]!r} instead of an array")
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
    """Parse `KEY : VALUE` lines, then the table of members."""
    fields = dict(re.findall(r"(?m)^ *([A-Z][A-Za-z ]*?) : (.*?) *$", answer))
    _, head, table = answer.partition("RaidDevice State\n")
    if not head or not {"Raid Level", "State"} <= fields.keys():
        raise ParseError(f"mdadm printed {answer[:200]!r} instead of an array's details")
    return ArrayDetail(
        level=fields["Raid Level"],
        state=fields["State"],
        layout=fields.get("Layout", "").replace("-unknown-", ""),
        chunk=fields.get("Chunk Size", ""),
        members=tuple(_parse_member(line) for line in table.splitlines() if line.strip()),
    )


def _parse_member(line: str) -> tuple[str, str]:
    match = _MEMBER.match(line)
    if match is None:
        raise ParseError(f"mdadm printed {line[:200]!r} instead of an array's member")
    state, slash, device = match["state"].partition("/dev/")
    return (slash + device, state.strip())


def parse_mismatches(answer: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for line in answer.splitlines():
        match = re.fullmatch(r"/sys/block/([A-Za-z0-9_]+)/md/mismatch_cnt:(\d+)", line)
        if match is None:
            raise ParseError(f"grep printed {line[:200]!r} instead of a count of mismatches")
        found[match[1]] = int(match[2])
    return found


SUDO = (
    SudoRule("/usr/sbin/mdadm", "--detail", WordPattern(r"/dev/md[A-Za-z0-9_]*"), read_only=True),
)
