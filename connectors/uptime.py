"""Uptime and load of a host. No I/O.

Formats: proc(5) uptime and loadavg; cpuset(7) for lists of processors; Debian's packages create
/run/reboot-required.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from connectors.command import Query, Shell
from connectors.errors import ParseError

_UPTIME, _LOAD = "/proc/uptime", "/proc/loadavg"
_KERNEL, _ONLINE = "/proc/sys/kernel/osrelease", "/sys/devices/system/cpu/online"
_REBOOT, _PACKAGES = "/run/reboot-required", "/run/reboot-required.pkgs"
_FILES = (_UPTIME, _LOAD, _KERNEL, _ONLINE, _REBOOT, _PACKAGES)
_PART = re.compile(r"^==> (/\S+) <==\n", re.MULTILINE)
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


@dataclass(frozen=True)
class Uptime:
    """Uptime, load and kernel of a host."""

    seconds: float
    """Seconds since it booted."""
    load: tuple[float, float, float]
    """Averages over 1, 5 and 15 minutes."""
    cores: int | None
    """Processors online, whether this login may use them or not; None if unknown."""
    kernel: str
    reboot_packages: tuple[str, ...] | None
    """Packages that require a reboot; None if no reboot is required."""


def query_uptime() -> Query[Uptime]:
    # One program and no shell, since this query is frequent. `head` prints the name of each file,
    # also of empty ones, so it is known which exist. Status 1: some do not.
    return Query(Shell(("head", "-n", "1000", *_FILES)), parse_uptime, frozenset({0, 1}))


def parse_uptime(answer: str) -> Uptime:
    before, *parts = _PART.split(answer)
    files = dict(zip(parts[::2], parts[1::2], strict=True))
    try:
        kernel = files[_KERNEL].strip()
        if before or not re.fullmatch(r"\S+", kernel):
            raise ValueError(kernel)
        one, five, fifteen = (float(word) for word in files[_LOAD].split()[:3])
        return Uptime(
            seconds=float(files[_UPTIME].split()[0]),
            load=(one, five, fifteen),
            cores=_count_cores(files[_ONLINE].strip()) if _ONLINE in files else None,
            kernel=kernel,
            reboot_packages=_parse_reboot_packages(files) if _REBOOT in files else None,
        )
    except (ValueError, IndexError, KeyError):
        raise ParseError(f"the host printed {answer[:200]!r} instead of its uptime") from None


def _count_cores(listed: str) -> int:
    """Count the processors of a list such as 0-3,8."""
    count = 0
    for each in listed.split(","):
        found = _RANGE.fullmatch(each)
        if found is None:
            raise ValueError(listed)
        count += int(found[2] or found[1]) - int(found[1]) + 1
    return count


def _parse_reboot_packages(files: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(files.get(_PACKAGES, "").split()))
