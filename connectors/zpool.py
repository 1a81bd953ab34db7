"""What a ZFS pool is: its health, its devices, its scans, and sizes as ZFS writes them. No I/O."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from connectors.command import Hint
from connectors.errors import ParseError

# What any command may run into where ZFS does not answer.
OUT_OF_REACH = (
    Hint(r"ZFS modules are not loaded", "ZFS's kernel module is not loaded on this host"),
    Hint(
        r"(?s)Connection refused.*zfs-fuse|connect: No such file or directory",
        "zfs-fuse is not running on this host: start it",
    ),
    Hint(
        r"(?i)permission denied|failed to initialize ZFS library",
        "the login may not do this with ZFS: it needs root",
    ),
)

ScanKind = Literal["scrub", "resilver", "error scrub"]
ScanState = Literal["running", "paused", "finished", "stopped"]

_UNITS = "BKMGTPEZ"
_SIZE = re.compile(rf"(\d+(?:\.\d+)?)([{_UNITS}]?)", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+) days? )?(\d+):(\d\d):(\d\d)", re.ASCII)
_SHORT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)

# What a device may be without a person having to look.
_SOUND = frozenset({"ONLINE", "AVAIL", "INUSE"})
# So many damaged files are named; the rest are counted.
_NAMED = 10


@dataclass(frozen=True)
class Scan:
    """A scrub or a resilver, the last of its kind; what is None is not told.

    when: its end; while it runs its start, and while it is paused since when it is. In UTC, or
        without a zone where only the host's own time is known.
    percent: how far it has come. rate: bytes per second. left, took: seconds.
    repaired: bytes that were put right. errors: what could not be.
    """

    kind: ScanKind
    state: ScanState
    time: datetime | None = None
    percent: float | None = None
    rate: int | None = None
    seconds_left: int | None = None
    seconds_taken: int | None = None
    repaired: int | None = None
    errors: int | None = None

    @property
    def description(self) -> str:
        """What became of it, in words: `scrub: 30.3 % done, 17.4 MiB/s, 16 s left`."""
        parts = [self._state, *self._figures]
        return f"{self.kind} {', '.join(part for part in parts if part)}"

    @property
    def _state(self) -> str:
        # Text tells moments in the host's own time, and JSON since 1970.
        zone = "UTC" if self.time and self.time.tzinfo else "host time"
        when = f"{self.time:%d %b %Y %H:%M} {zone}" if self.time else ""
        far = "" if self.percent is None else f"{self.percent:.1f} % done"
        if self.state == "running":
            return f"running, {far}" if far else "running"
        if self.state == "paused":
            return f"paused since {when} at {far}"
        ended = "done" if self.state == "finished" else "stopped"
        return f"{ended} on {when}" if when else ended

    @property
    def _figures(self) -> list[str]:
        done = "put back" if self.kind == "resilver" else "repaired"
        return [
            f"{format_size(self.rate)}/s" if self.rate else "",
            f"{format_duration(self.seconds_left)} left" if self.seconds_left is not None else "",
            f"in {format_duration(self.seconds_taken)}" if self.seconds_taken is not None else "",
            "" if self.repaired is None else f"{done} {format_size(self.repaired)}",
            "" if self.errors is None else f"{self.errors:,} errors",
        ]


@dataclass(frozen=True)
class Vdev:
    """One row of a pool's devices: a disk or file (a leaf), or what combines several.

    name: the path where it is known. note: what ZFS says beside it, such as `was /dev/sdd1`.
    group: data, or special, dedup, logs, cache, spares. Errors are counted since the last clear;
    large numbers are about right only.
    """

    name: str
    state: str
    read_errors: int = 0
    write_errors: int = 0
    checksum_errors: int = 0
    note: str = ""
    group: str = "data"
    is_leaf: bool = True

    @property
    def error_text(self) -> str:
        counts = {
            "read": self.read_errors,
            "write": self.write_errors,
            "checksum": self.checksum_errors,
        }
        return ", ".join(f"{count:,} {kind} errors" for kind, count in counts.items() if count)


@dataclass(frozen=True)
class Pool:
    """What `zpool status` tells of one pool.

    scans: the last scrub and resilver, as far as ZFS remembers; empty means none since the pool
        was made, or with zfs-fuse since it was imported.
    errors: pieces of data that are lost; None where ZFS cannot say. files: which, where it knows.
    status, action: what is wrong and what to do, in ZFS's words.
    """

    name: str
    state: str
    vdevs: tuple[Vdev, ...] = ()
    scans: tuple[Scan, ...] = ()
    error_count: int | None = 0
    damaged_files: tuple[str, ...] = ()
    status: str = ""
    action: str = ""

    @property
    def last_scrub(self) -> Scan | None:
        """The last scrub; None also where a resilver has come since and ZFS keeps only that."""
        return next((scan for scan in self.scans if scan.kind == "scrub"), None)

    @property
    def running_scan(self) -> Scan | None:
        return next((scan for scan in self.scans if scan.state == "running"), None)

    @property
    def running_resilver(self) -> Scan | None:
        scans = [scan for scan in self.scans if scan.state == "running"]
        return next((scan for scan in scans if scan.kind == "resilver"), None)

    @property
    def broken_disks(self) -> str:
        """Name the disks that are not as they should be: `sdd is REMOVED`."""
        return ", ".join(
            f"{vdev.name} is {vdev.state}{f' ({vdev.note})' if vdev.note else ''}"
            for vdev in self.vdevs
            if vdev.is_leaf and vdev.state not in _SOUND
        )

    @property
    def findings(self) -> list[str]:
        """What a person should act on, one sentence each."""
        return [
            *self._list_state_findings(),
            *self._list_counter_findings(),
            *self._list_loss_findings(),
            *self._list_stopped_resilvers(),
        ]

    def _list_state_findings(self) -> list[str]:
        if self.state == "ONLINE" and not self.broken_disks:
            return []
        why = f": {self.broken_disks}" if self.broken_disks else ""
        # ZFS has one advice at a time, and that for lost data hides what to do about the disk.
        advice = f". {self.action}" if self.action and not self.error_count else ""
        return [f"{self.name} is {self.state}{why}{advice}"]

    def _list_counter_findings(self) -> list[str]:
        counting = [vdev for vdev in self.vdevs if vdev.error_text and vdev.is_leaf]
        return [
            f"{vdev.name} of {self.name} has counted {vdev.error_text}"
            f"{' and is ONLINE all the same' if vdev.state == 'ONLINE' else ''}: look at the disk "
            "and its cable, then `zpool clear`"
            for vdev in counting
        ]

    def _list_loss_findings(self) -> list[str]:
        if self.error_count is None:
            return [f"{self.name} cannot say whether data is lost"]
        if not self.error_count:
            return []
        more = (
            f" and {len(self.damaged_files) - _NAMED} more"
            if len(self.damaged_files) > _NAMED
            else ""
        )
        names = f": {', '.join(self.damaged_files[:_NAMED])}{more}" if self.damaged_files else ""
        places = "1 place" if self.error_count == 1 else f"{self.error_count:,} places"
        return [f"{self.name} has lost data in {places}{names}: restore from backup"]

    def _list_stopped_resilvers(self) -> list[str]:
        return [
            f"A resilver of {self.name} was stopped before its end, so a disk lacks data: "
            "`zpool online` or `zpool clear` it, and see that the resilver goes on"
            for scan in self.scans
            if (scan.kind, scan.state) == ("resilver", "stopped")
        ]


def parse_size(text: str) -> int:
    """Understand a number as ZFS writes it, such as `3.43K`: units are powers of 1024."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ParseError(f"ZFS wrote {text[:40]!r} where a number belongs")
    return round(float(found[1]) * 1024 ** max(0, _UNITS.find(found[2] or "B")))


def format_size(amount: int) -> str:
    """Write bytes for people: `1.5 MiB`."""
    value, unit = float(amount), "B"
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    if unit == "B":
        return f"{amount} B"
    return f"{value:.0f} {unit}iB" if value >= 100 else f"{value:.3g} {unit}iB"


def parse_duration(text: str) -> int:
    """Understand how long something took: `3 days 07:42:27`, `00:00:40` or `5h4m`."""
    found = _CLOCK.fullmatch(text) or (_SHORT.fullmatch(text) if text else None)
    if found is None:
        raise ParseError(f"ZFS wrote {text[:40]!r} where a length of time belongs")
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def format_duration(length: int) -> str:
    """Write seconds for people, in the two largest units: `3 days 7 h`."""
    days, rest = divmod(length, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    named = ((days, "day" if days == 1 else "days"), (hours, "h"), (minutes, "min"), (rest, "s"))
    parts = [f"{count} {unit}" for count, unit in named if count]
    return " ".join(parts[:2]) or "less than a minute"
