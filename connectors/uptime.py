"""How long a host has been up, and how busy it is. No I/O.

Formats: proc(5) uptime and loadavg; cpuset(7) tells how lists of processors are written;
/run/reboot-required is what Debian's packages leave behind.
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
    """seconds: since the host started. load: over 1, 5 and 15 minutes, of the whole host.

    cores: that are online, whether this login may use them or not: the load is theirs. None where
    they are not told, as in old containers.
    reboot_for: packages that come into force with the next start; None if none asked for it.
    """

    seconds: float
    load: tuple[float, float, float]
    cores: int | None
    kernel: str
    reboot_packages: tuple[str, ...] | None


def query_uptime() -> Query[Uptime]:
    # One program and no shell, as hosts are asked often. Of several files `head` tells the names,
    # also of empty ones, so that it is seen which there are. Status 1: not all are.
    return Query(Shell(("head", "-n", "1000", *_FILES)), parse_uptime, frozenset({0, 1}))


def parse_uptime(answer: str) -> Uptime:
    before, *parts = _PART.split(answer)
    told = dict(zip(parts[::2], parts[1::2], strict=True))
    try:
        kernel = told[_KERNEL].strip()
        if before or not re.fullmatch(r"\S+", kernel):
            raise ValueError(kernel)
        one, five, fifteen = (float(word) for word in told[_LOAD].split()[:3])
        return Uptime(
            seconds=float(told[_UPTIME].split()[0]),
            load=(one, five, fifteen),
            cores=_count_cores(told[_ONLINE].strip()) if _ONLINE in told else None,
            kernel=kernel,
            reboot_packages=_parse_reboot_packages(told) if _REBOOT in told else None,
        )
    except (ValueError, IndexError, KeyError):
        raise ParseError(
            f"the host answered {answer[:200]!r} instead of how long it is up"
        ) from None


def _count_cores(listed: str) -> int:
    """Count the processors of a list such as 0-3,8."""
    count = 0
    for each in listed.split(","):
        found = _RANGE.fullmatch(each)
        if found is None:
            raise ValueError(listed)
        count += int(found[2] or found[1]) - int(found[1]) + 1
    return count


def _parse_reboot_packages(told: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(told.get(_PACKAGES, "").split()))
