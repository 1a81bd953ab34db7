"""Expand the events of a calendar to shifts, in a process of its own with limits.

A calendar is written by others, and some recurrences take minutes to expand or never end. Run as
a program, it reads one JSON line with the arguments of list_shifts() and then the calendar, and
prints the shifts as JSON.

Formats: RFC 5545; an event of PagerDuty has an ATTENDEE that is only an address.
"""

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

from bot.model.shift import Shift, decode_shifts, encode_shifts

if TYPE_CHECKING:
    import icalendar

# So far ahead shifts are read: longer than the oldest reading that counts. Shifts of the last day
# are kept too, because a running run is judged by its start.
DAYS = 8
_DAY = 86_400 * 1_000_000
_MAX_SHIFTS, _MAX_ADDRESSES, _MAX_TITLE_LENGTH = 2000, 50, 120
_SECONDS, _MEMORY_BYTES = 30, 1 << 30
_ADDRESS_PATTERN = re.compile(r"[^\s<>()\[\],;:\"'@]+@[^\s<>()\[\],;:\"'@]+")


class CalendarError(Exception):
    """A calendar cannot be expanded. The message says why."""


def expand_calendar(text: bytes, *, zone: str, now: int, cpu_seconds: int = 5) -> Sequence[Shift]:
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

    An event names the people on duty by its attendees who have not declined. Without attendees,
    the addresses in its summary count, and without those its organiser.

    Args:
        text: The calendar.
        zone: The time zone of events that name none.
        now: Microseconds since 1970.

    Raises:
        ValueError: The calendar is not valid, or has too many events.
    """
    import icalendar
    import recurring_ical_events

    calendar = icalendar.Calendar.from_ical(text)
    local = ZoneInfo(zone)
    start = datetime.fromtimestamp(now / 1_000_000, UTC)
    # A day more on both sides, because the time zone of events without one is applied afterwards.
    found = recurring_ical_events.of(calendar).between(
        start - timedelta(days=2), start + timedelta(days=DAYS + 1)
    )
    shifts = [
        _build_shift(event, local)
        for event in found
        if isinstance(event, icalendar.Event) and str(event.get("STATUS")) != "CANCELLED"
    ]
    since, until = now - _DAY, now + DAYS * _DAY
    current = [one for one in shifts if since < one.ends_at and one.starts_at < until]
    if len(current) > _MAX_SHIFTS:
        raise ValueError(f"has more than {_MAX_SHIFTS} events in {DAYS} days")
    return sorted(current, key=lambda shift: (shift.starts_at, shift.title))


def _build_shift(event: "icalendar.Event", zone: ZoneInfo) -> Shift:
    summary = " ".join(str(event.get("SUMMARY", "")).split())
    title = "".join(letter for letter in summary if letter.isprintable())[:_MAX_TITLE_LENGTH]
    addresses = dict.fromkeys(one.casefold() for one in _iterate_addresses(event, summary))
    return Shift(
        _to_microseconds(event.start, zone),
        _to_microseconds(event.end, zone),
        tuple(addresses)[:_MAX_ADDRESSES],
        title or "event without a summary",
    )


def _iterate_addresses(event: "icalendar.Event", summary: str) -> Iterator[str]:
    attendees = _list_values(event.get("ATTENDEE"))
    if attendees:
        for one in attendees:
            parameters: Mapping[str, str] = getattr(one, "params", {})
            if parameters.get("PARTSTAT", "").upper() != "DECLINED":
                yield from _ADDRESS_PATTERN.findall(str(one))
        return
    found = _ADDRESS_PATTERN.findall(summary)
    for one in found or map(str, _list_values(event.get("ORGANIZER"))):
        yield from _ADDRESS_PATTERN.findall(one)


def _list_values(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return cast("list[Any]", value) if isinstance(value, list) else (value,)


def _to_microseconds(point: date | datetime, zone: ZoneInfo) -> int:
    """Return a time since 1970. A day begins at midnight of the zone."""
    if not isinstance(point, datetime):
        point = datetime.combine(point, time())
    return round((point if point.tzinfo else point.replace(tzinfo=zone)).timestamp() * 1_000_000)


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
