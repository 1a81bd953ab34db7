"""How long a host has been up, and how busy it is. No I/O.

Formats: proc(5) uptime and loadavg; /run/reboot-required is what Debian's packages leave behind.
"""

import re
from dataclasses import dataclass

from connectors.command import Query, Shell
from connectors.trouble import NotUnderstood

_SCRIPT = (
    "cat /proc/uptime /proc/loadavg && nproc && uname -r && "
    "if [ -e /run/reboot-required ]; then echo reboot; "
    "cat /run/reboot-required.pkgs 2>/dev/null; fi; true"
)


@dataclass(frozen=True)
class Uptime:
    """seconds: since the host started. load: over 1, 5 and 15 minutes. cores: for this login.

    reboot_for: packages that come into force with the next start; None if none asked for it.
    """

    seconds: float
    load: tuple[float, float, float]
    cores: int
    kernel: str
    reboot_for: tuple[str, ...] | None


def uptime() -> Query[Uptime]:
    return Query(Shell(("sh", "-c", _SCRIPT)), parse_uptime)


def parse_uptime(answer: str) -> Uptime:
    lines = answer.splitlines()
    try:
        one, five, fifteen = (float(word) for word in lines[1].split()[:3])
        if not re.fullmatch(r"\S+", lines[3]) or lines[4:5] not in ([], ["reboot"]):
            raise ValueError(lines[3])
        return Uptime(
            seconds=float(lines[0].split()[0]),
            load=(one, five, fifteen),
            cores=int(lines[2]),
            kernel=lines[3],
            reboot_for=tuple(dict.fromkeys(lines[5:])) if lines[4:] else None,
        )
    except (ValueError, IndexError):
        raise NotUnderstood(
            f"the host answered {answer[:200]!r} instead of how long it is up"
        ) from None
