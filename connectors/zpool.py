"""What a ZFS pool is: its health, its devices, its scans, and sizes as ZFS writes them. No I/O."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from connectors.command import Hint
from connectors.trouble import NotUnderstood

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
    when: datetime | None = None
    percent: float | None = None
    rate: int | None = None
    left: int | None = None
    took: int | None = None
    repaired: int | None = None
    errors: int | None = None

    @property
    def story(self) -> str:
        """What became of it, in words: `scrub: 30.3 % done, 17.4 MiB/s, 16 s left`."""
        parts = [self._state, *self._figures]
        return f"{self.kind} {', '.join(part for part in parts if part)}"

    @property
    def _state(self) -> str:
        # Text tells moments in the host's own time, and JSON since 1970.
        zone = "UTC" if self.when and self.when.tzinfo else "host time"
        when = f"{self.when:%d %b %Y %H:%M} {zone}" if self.when else ""
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
            f"{written(self.rate)}/s" if self.rate else "",
            f"{duration(self.left)} left" if self.left is not None else "",
            f"in {duration(self.took)}" if self.took is not None else "",
            "" if self.repaired is None else f"{done} {written(self.repaired)}",
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
    read: int = 0
    write: int = 0
    checksum: int = 0
    note: str = ""
    group: str = "data"
    leaf: bool = True

    @property
    def errors(self) -> str:
        counts = {"read": self.read, "write": self.write, "checksum": self.checksum}
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
    errors: int | None = 0
    files: tuple[str, ...] = ()
    status: str = ""
    action: str = ""

    @property
    def scrub(self) -> Scan | None:
        """The last scrub; None also where a resilver has come since and ZFS keeps only that."""
        return next((scan for scan in self.scans if scan.kind == "scrub"), None)

    @property
    def running(self) -> Scan | None:
        return next((scan for scan in self.scans if scan.state == "running"), None)

    @property
    def resilvering(self) -> Scan | None:
        scans = [scan for scan in self.scans if scan.state == "running"]
        return next((scan for scan in scans if scan.kind == "resilver"), None)

    @property
    def broken(self) -> str:
        """Name the disks that are not as they should be: `sdd is REMOVED`."""
        return ", ".join(
            f"{vdev.name} is {vdev.state}{f' ({vdev.note})' if vdev.note else ''}"
            for vdev in self.vdevs
            if vdev.leaf and vdev.state not in _SOUND
        )

    @property
    def complaints(self) -> list[str]:
        """What a person should act on, one sentence each."""
        return [*self._state_complaints(), *self._counters(), *self._losses(), *self._undone()]

    def _state_complaints(self) -> list[str]:
        if self.state == "ONLINE" and not self.broken:
            return []
        why = f": {self.broken}" if self.broken else ""
        # ZFS has one advice at a time, and that for lost data hides what to do about the disk.
        advice = f". {self.action}" if self.action and not self.errors else ""
        return [f"{self.name} is {self.state}{why}{advice}"]

    def _counters(self) -> list[str]:
        counting = [vdev for vdev in self.vdevs if vdev.errors and vdev.leaf]
        return [
            f"{vdev.name} of {self.name} has counted {vdev.errors}"
            f"{' and is ONLINE all the same' if vdev.state == 'ONLINE' else ''}: look at the disk "
            "and its cable, then `zpool clear`"
            for vdev in counting
        ]

    def _losses(self) -> list[str]:
        if self.errors is None:
            return [f"{self.name} cannot say whether data is lost"]
        if not self.errors:
            return []
        more = f" and {len(self.files) - _NAMED} more" if len(self.files) > _NAMED else ""
        names = f": {', '.join(self.files[:_NAMED])}{more}" if self.files else ""
        places = "1 place" if self.errors == 1 else f"{self.errors:,} places"
        return [f"{self.name} has lost data in {places}{names}: restore from backup"]

    def _undone(self) -> list[str]:
        return [
            f"A resilver of {self.name} was stopped before its end, so a disk lacks data: "
            "`zpool online` or `zpool clear` it, and see that the resilver goes on"
            for scan in self.scans
            if (scan.kind, scan.state) == ("resilver", "stopped")
        ]


def size(text: str) -> int:
    """Understand a number as ZFS writes it, such as `3.43K`: units are powers of 1024."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise NotUnderstood(f"ZFS wrote {text[:40]!r} where a number belongs")
    return round(float(found[1]) * 1024 ** max(0, _UNITS.find(found[2] or "B")))


def written(amount: int) -> str:
    """Write bytes for people: `1.5 MiB`."""
    value, unit = float(amount), "B"
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    if unit == "B":
        return f"{amount} B"
    return f"{value:.0f} {unit}iB" if value >= 100 else f"{value:.3g} {unit}iB"


def seconds(text: str) -> int:
    """Understand how long something took: `3 days 07:42:27`, `00:00:40` or `5h4m`."""
    found = _CLOCK.fullmatch(text) or (_SHORT.fullmatch(text) if text else None)
    if found is None:
        raise NotUnderstood(f"ZFS wrote {text[:40]!r} where a length of time belongs")
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def duration(length: int) -> str:
    """Write seconds for people, in the two largest units: `3 days 7 h`."""
    days, rest = divmod(length, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    named = ((days, "day" if days == 1 else "days"), (hours, "h"), (minutes, "min"), (rest, "s"))
    parts = [f"{count} {unit}" for count, unit in named if count]
    return " ".join(parts[:2]) or "less than a minute"
