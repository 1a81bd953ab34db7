"""Expand the events of a calendar to shifts, in a process of its own with limits.

A calendar is written by others, and some recurrences take minutes to expand or never end. Run as
a program, it reads one JSON line with the arguments of list_shifts() and then the calendar, and
prints the shifts as JSON.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from bot.features.oncall.shift import Shift, decode_shifts, encode_shifts

# So far ahead shifts are read: longer than the oldest reading that counts. Shifts of the last day
# are kept too, because a running run is judged by its start.
DAYS = 8
_DAY = 86_400 * 1_000_000
_MAX_SHIFTS = 2000
_SECONDS, _MEMORY_BYTES = 30, 1 << 30


class CalendarError(Exception):
    """A calendar cannot be expanded. The message says why."""


def expand_calendar(text: bytes, *, zone: str, now: int, cpu_seconds: int = 10) -> Sequence[Shift]:
    """Return what list_shifts() does. Raises CalendarError. cpu_seconds: the limit."""
    request = json.dumps({"cpu_seconds": cpu_seconds, "zone": zone, "now": now}).encode()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", __name__],
            input=request + b"\n" + text,
            capture_output=True,
            timeout=_SECONDS,
            env={"LANG": "C.UTF-8"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CalendarError(f"expanding its events takes longer than {_SECONDS} s") from None
    if done.returncode == 1:
        raise CalendarError(done.stderr.decode(errors="replace").strip()[-300:])
    if done.returncode:
        raise CalendarError("expanding its events takes too much time or memory")
    return decode_shifts(done.stdout)


def list_shifts(text: bytes, *, zone: str, now: int) -> Sequence[Shift]:
    """Return the shifts of the last and the next days, by start.

    Args:
        text: The calendar.
        zone: The time zone of events that name none.
        now: Microseconds since 1970.

    Raises:
        ValueError: The calendar is not valid, or has too many events.
    """
    # Only the program needs the libraries.
    from bot.features.oncall.calendar_events import Window, iterate_shifts

    window = Window(ZoneInfo(zone), now - _DAY, now + DAYS * _DAY)
    current = [
        one
        for one in iterate_shifts(text, window)
        if window.since < one.ends_at and one.starts_at < window.until
    ]
    if len(current) > _MAX_SHIFTS:
        raise ValueError(f"has more than {_MAX_SHIFTS} events in {DAYS} days")
    return sorted(current, key=lambda shift: (shift.starts_at, shift.title))


def _limit_resources(cpu_seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def _run() -> int:
    request = json.loads(sys.stdin.buffer.readline())
    _limit_resources(request.pop("cpu_seconds"))
    try:
        shifts = list_shifts(sys.stdin.buffer.read(), **request)
    except MemoryError:
        return os.EX_SOFTWARE
    except Exception as error:  # noqa: BLE001 - the libraries raise errors of many types
        sys.stderr.write(f"is not a valid calendar: {error}")
        return 1
    sys.stdout.write(encode_shifts(shifts))
    return 0


if __name__ == "__main__":
    sys.exit(_run())
