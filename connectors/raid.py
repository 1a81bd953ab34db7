"""Linux software RAID: arrays, their members and their progress. No I/O.

Formats: md(4), mdadm(8). State and progress come from the kernel, the members from mdadm.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.rows import NamedRows, Rows, parse_each
from connectors.sudo import SudoRule, WordPattern

_HINTS = (
    Hint(r"must be super-user", "mdadm requires root: add the login's sudo rule"),
    Hint(r"cannot open /dev/", "the array does not exist any more"),
    Hint(r"mdadm.*(not found|No such file)|run command .mdadm", "install mdadm on the host"),
)

_ARRAY = re.compile(
    r"^(?P<name>md[A-Za-z0-9_]*) : (?P<state>active|broken|inactive)(?: \((?P<only>[a-z-]+)\))?"
    r"(?: (?P<level>[a-z][a-z0-9]*))?(?P<members>(?: [A-Za-z0-9!/_-]+\[\d+\](?:\([A-Z]\))*)*) *$"
)
_PROGRESS = re.compile(
    r"(?P<action>resync|recovery|check|repair|reshape) ?= *(?P<percent>[\d.]+)% "
    r"\(\d+/\d+\) finish=(?P<minutes>[\d.]+)min speed=(?P<speed>\d+)K/sec"
)
_WAITING = re.compile(r"(resync|recovery|reshape) ?= ?(DELAYED|PENDING|REMOTE)")
# The levels for which the kernel always prints how many members work.
_REDUNDANT = frozenset({"raid1", "raid4", "raid5", "raid6", "raid10"})
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
    is_broken: bool = False
    """Whether it has lost more members than its level can: it fails reads and writes."""

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
    members: Rows[tuple[str, str]]
    """Each device with its state, such as ("/dev/sda", "active sync").

    A missing member has the state "removed" and no name.
    """


def query_arrays() -> Query[Rows[RaidArray]]:
    """Query all arrays. A kernel that never loaded the md driver has no such file."""
    script = "if [ -e /proc/mdstat ]; then exec cat /proc/mdstat; fi"
    return Query(Shell(("sh", "-c", script, "keyturn")), parse_arrays)


def query_detail(name: str) -> Query[ArrayDetail]:
    """Query mdadm's details of one array, by its kernel name."""
    return Query(
        Shell(("mdadm", "--detail", f"/dev/{name}"), root=True, hints=_HINTS), parse_detail
    )


def query_mismatches(names: Iterable[str]) -> Query[NamedRows[str, int]]:
    """Query how many sectors differed in the last check of each array that can be checked."""
    files = tuple(f"/sys/block/{name}/md/mismatch_cnt" for name in names)
    return Query(
        Shell(("grep", "-s", "-H", "^", "--", *files)), parse_mismatches, frozenset({0, 1, 2})
    )


def parse_arrays(answer: str) -> Rows[RaidArray]:
    if answer and not answer.startswith("Personalities :"):
        raise ParseError(f"/proc/mdstat has an unknown format: {answer[:80]!r}")
    return parse_each(_split_arrays(answer), _parse_array)


def _split_arrays(answer: str) -> Iterator[str]:
    """Yield each line that is not indented, with the indented ones after it."""
    for block in re.split(r"(?m)^(?=\S)", answer):
        if block.strip() and not block.startswith(("Personalities :", "unused devices:")):
            yield block


def _parse_array(block: str) -> RaidArray | None:
    # A container of Intel's or DDF's arrays is never active; its arrays name it.
    if re.search(r" super external:[a-z]", block):
        return None
    first, *rest = block.splitlines()
    match = _ARRAY.match(first)
    if match is None:
        raise ParseError("it is no array in a known state")
    more = "\n".join(rest)
    counts, progress = _COUNTS.search(more), _PROGRESS.search(more)
    if match["level"] in _REDUNDANT and counts is None:
        raise ParseError("it does not say how many members work")
    return RaidArray(
        name=match["name"],
        is_active=match["state"] != "inactive",
        level=match["level"] or "",
        is_read_only=bool(match["only"]),
        member_count=int(counts[1]) if counts else None,
        working_count=int(counts[2]) if counts else None,
        progress=_make_progress(progress) if progress else None,
        is_waiting=bool(_WAITING.search(more)),
        is_broken=match["state"] == "broken",
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
        members=parse_each(filter(str.strip, table.splitlines()), _parse_member),
    )


def _parse_member(line: str) -> tuple[str, str]:
    match = _MEMBER.match(line)
    if match is None:
        raise ParseError("it is no member of an array")
    state, slash, device = match["state"].partition("/dev/")
    return (slash + device, state.strip())


def parse_mismatches(answer: str) -> NamedRows[str, int]:
    counts = parse_each(answer.splitlines(), _parse_mismatch)
    return NamedRows(counts, counts.odd)


def _parse_mismatch(line: str) -> tuple[str, int]:
    match = re.fullmatch(r"/sys/block/([A-Za-z0-9_]+)/md/mismatch_cnt:(\d+)", line)
    if match is None:
        raise ParseError("it is no count of mismatches")
    return match[1], int(match[2])


SUDO = (
    SudoRule(
        "/usr/sbin/mdadm",
        "--detail",
        WordPattern(r"/dev/md[A-Za-z0-9_]*"),
        read_only=True,
        optional=True,  # only arrays need it
    ),
)
