"""A ZFS pool: health, devices, scans, and sizes as ZFS prints them. No I/O."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from connectors.amounts import format_count, format_duration, format_size
from connectors.command import Hint
from connectors.errors import ParseError

# Names of pools and datasets, as a pattern. ZFS also allows blanks; Keyturn does not.
POOL = r"[A-Za-z][A-Za-z0-9_.:-]{0,99}"
DATASET = rf"{POOL}(/[A-Za-z0-9_.:][A-Za-z0-9_.:-]{{0,99}}){{0,20}}"

# Errors of any command where ZFS does not respond.
OUT_OF_REACH = (
    Hint(r"ZFS modules are not loaded", "ZFS's kernel module is not loaded on this host"),
    Hint(
        r"(?s)Connection refused.*zfs-fuse|connect: No such file or directory",
        "zfs-fuse is not running on this host: start it",
    ),
    Hint(
        r"(?i)permission denied|failed to initialize ZFS library",
        "this requires root: add the login's sudo rule for ZFS",
    ),
)

ScanKind = Literal["scrub", "resilver", "error scrub"]
ScanState = Literal["running", "paused", "finished", "stopped"]

_UNITS = "BKMGTPEZ"
_SIZE = re.compile(rf"(\d+(?:\.\d+)?)([{_UNITS}]?)", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+) days? )?(\d+):(\d\d):(\d\d)", re.ASCII)
_SHORT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)

# States of a device that need no attention.
_SOUND = frozenset({"ONLINE", "AVAIL", "INUSE"})
# How many damaged files are listed; the others are counted.
_NAMED = 10


@dataclass(frozen=True)
class Scan:
    """The last scrub or resilver. A field is None if ZFS does not print it."""

    kind: ScanKind
    state: ScanState
    time: datetime | None = None
    """When it ended; if running, when it started; if paused, since when.

    In UTC, or without a time zone where only the host's local time is known.
    """
    percent: float | None = None
    """How much is done."""
    rate: int | None = None
    """Bytes per second."""
    seconds_left: int | None = None
    seconds_taken: int | None = None
    repaired: int | None = None
    """Bytes that were repaired."""
    errors: int | None = None
    """Errors that could not be repaired."""

    @property
    def description(self) -> str:
        """State and figures as text: `scrub running, 30.3 % done, 17.4 MiB/s, 16 s left`."""
        parts = [self._state, *self._figures]
        return f"{self.kind} {', '.join(part for part in parts if part)}"

    @property
    def _state(self) -> str:
        # The text format has local times, and JSON has seconds since 1970.
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
        done = "resilvered" if self.kind == "resilver" else "repaired"
        return [
            f"{format_size(self.rate)}/s" if self.rate else "",
            f"{format_duration(self.seconds_left)} left" if self.seconds_left is not None else "",
            f"in {format_duration(self.seconds_taken)}" if self.seconds_taken is not None else "",
            "" if self.repaired is None else f"{done} {format_size(self.repaired)}",
            "" if self.errors is None else format_count(self.errors, "error"),
        ]


@dataclass(frozen=True)
class Vdev:
    """One device of a pool: a disk or file (a leaf), or a group of devices.

    Errors are counted since the last clear; large numbers are approximate.
    """

    name: str
    """The path where it is known."""
    state: str
    read_errors: int = 0
    write_errors: int = 0
    checksum_errors: int = 0
    note: str = ""
    """ZFS's note beside it, such as `was /dev/sdd1`."""
    group: str = "data"
    """data, special, dedup, logs, cache or spares."""
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
    """One pool, as `zpool status` prints it."""

    name: str
    state: str
    vdevs: tuple[Vdev, ...] = ()
    scans: tuple[Scan, ...] = ()
    """The last scrub and resilver.

    Empty means none since the pool was created, or with zfs-fuse since it was imported, unless
    there are `unknown_scans`.
    """
    unknown_scans: tuple[str, ...] = ()
    """What ZFS prints about scans and Keyturn does not understand."""
    error_count: int | None = 0
    """Data errors, each of them lost data; None if unknown."""
    damaged_files: tuple[str, ...] = ()
    """The files with data errors, where ZFS knows them."""
    status: str = ""
    """ZFS's own message about what is wrong."""
    action: str = ""
    """ZFS's own message about what to do."""

    @property
    def was_never_scanned(self) -> bool:
        return not self.scans and not self.unknown_scans

    @property
    def last_scrub(self) -> Scan | None:
        """The last scrub; also None if ZFS keeps only a later resilver."""
        return next((scan for scan in self.scans if scan.kind == "scrub"), None)

    @property
    def running_scan(self) -> Scan | None:
        return next((scan for scan in self.scans if scan.state == "running"), None)

    @property
    def paused_scan(self) -> Scan | None:
        return next((scan for scan in self.scans if scan.state == "paused"), None)

    @property
    def running_resilver(self) -> Scan | None:
        scans = [scan for scan in self.scans if scan.state == "running"]
        return next((scan for scan in scans if scan.kind == "resilver"), None)

    @property
    def broken_disks(self) -> str:
        """The disks that need attention, as text: `sdd is REMOVED`."""
        return ", ".join(
            f"{vdev.name} is {vdev.state}{f' ({vdev.note})' if vdev.note else ''}"
            for vdev in self.vdevs
            if vdev.is_leaf and vdev.state not in _SOUND
        )

    @property
    def findings(self) -> list[str]:
        """Problems that a person should act on, one sentence each."""
        return [
            *self._list_state_findings(),
            *self._list_counter_findings(),
            *self._list_unattributed_errors(),
            *self._list_loss_findings(),
            *self._list_stopped_resilvers(),
        ]

    def _list_state_findings(self) -> list[str]:
        if self.state == "ONLINE" and not self.broken_disks:
            return []
        why = f": {self.broken_disks}" if self.broken_disks else ""
        # ZFS prints one action at a time, and that for lost data hides the one for the disk.
        advice = f". {self.action}" if self.action and not self.error_count else ""
        return [f"{self.name} is {self.state}{why}{advice}"]

    def _list_counter_findings(self) -> list[str]:
        counting = [vdev for vdev in self.vdevs if vdev.error_text and vdev.is_leaf]
        return [
            f"{vdev.name} of {self.name} has {vdev.error_text}"
            f"{' although it is ONLINE' if vdev.state == 'ONLINE' else ''}: check the disk and "
            "its cable, then request `zfs clear`"
            for vdev in counting
        ]

    def _list_unattributed_errors(self) -> list[str]:
        """Describe errors of a group for which ZFS found no disk: it repaired them from none."""
        if self.error_count or any(vdev.error_text for vdev in self.vdevs if vdev.is_leaf):
            return []
        groups = [vdev for vdev in self.vdevs if vdev.error_text and not vdev.is_leaf]
        # The pool itself has those of its groups too.
        return [
            f"{vdev.name} of {self.name} has {vdev.error_text}, and none of its disks has any: "
            "request `zfs scrub start`, and test the memory of the host if they come back"
            for vdev in [one for one in groups if one.name != self.name] or groups
        ]

    def _list_loss_findings(self) -> list[str]:
        if self.error_count is None:
            return [f"ZFS does not report whether {self.name} has lost data"]
        if not self.error_count:
            return []
        more = (
            f" and {len(self.damaged_files) - _NAMED} more"
            if len(self.damaged_files) > _NAMED
            else ""
        )
        names = f": {', '.join(self.damaged_files[:_NAMED])}{more}" if self.damaged_files else ""
        places = format_count(self.error_count, "place")
        return [f"{self.name} has lost data in {places}{names}: restore it from a backup"]

    def _list_stopped_resilvers(self) -> list[str]:
        return [
            f"A resilver of {self.name} was stopped early, so a disk lacks data: run `zpool "
            "online` or `zpool clear`, and check that the resilver continues"
            for scan in self.scans
            if (scan.kind, scan.state) == ("resilver", "stopped")
        ]


def parse_size(text: str) -> int:
    """Parse a number as ZFS prints it, such as `3.43K`; units are powers of 1024."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ParseError(f"ZFS printed {text[:40]!r} instead of a number")
    return round(float(found[1]) * 1024 ** max(0, _UNITS.find(found[2] or "B")))


def parse_duration(text: str) -> int:
    """Parse a duration: `3 days 07:42:27`, `00:00:40` or `5h4m`. Returns seconds."""
    found = _CLOCK.fullmatch(text) or (_SHORT.fullmatch(text) if text else None)
    if found is None:
        raise ParseError(f"ZFS printed {text[:40]!r} instead of a duration")
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest
