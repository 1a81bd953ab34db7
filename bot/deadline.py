"""Deadlines: when something is to end, as people type it. Pure.

Times are microseconds since 1970, UTC.
"""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPAN = re.compile(r"(\d{1,4}) ?(m|min|minutes?|h|hours?|d|days?|w|weeks?)", re.ASCII | re.I)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_CIVIL = re.compile(
    r"(?P<day>today|tomorrow|\d{4}-\d\d-\d\d)?(?:[ T]?(?P<hour>\d{1,2}):(?P<minute>\d\d))?"
    r"(?: (?P<zone>[A-Za-z]\S*))?",
    re.ASCII,
)
EXAMPLES = "18:00, tomorrow 18:00, 2026-03-01 14:30 Europe/Paris, or 4 hours"


class NotADeadline(ValueError):
    """The words name no time, or one that has passed. The message says what can be typed."""


def deadline(text: str, *, now: int) -> int:
    """Return the moment that was typed. Without a zone it is UTC; a day alone means its end."""
    typed = " ".join(text.split())
    span = _SPAN.fullmatch(typed)
    civil = _CIVIL.fullmatch(typed) if typed else None
    if span:
        length = timedelta(**{_UNITS[span[2][0].lower()]: int(span[1])})
        moment = _datetime(now) + length
    elif civil and (civil["day"] or civil["hour"]):
        moment = _written(civil, typed, now)
    else:
        raise NotADeadline(f"“{typed[:40]}” is no time: type {EXAMPLES}")
    if moment <= _datetime(now):
        raise NotADeadline(f"{written(_micros(moment))} has passed already")
    return _micros(moment)


def written(at: int) -> str:
    """Return `2026-03-01 14:30 UTC`."""
    return f"{_datetime(at):%Y-%m-%d %H:%M} UTC"


def _written(civil: re.Match[str], typed: str, now: int) -> datetime:
    zone = _zone(civil["zone"] or "UTC")
    today = _datetime(now).astimezone(zone).date()
    named = {"today": today, "tomorrow": today + timedelta(days=1), None: today}
    try:
        day = named.get(civil["day"]) or datetime.fromisoformat(civil["day"]).date()
        if civil["hour"] is None:
            start = datetime(day.year, day.month, day.day, tzinfo=zone) + timedelta(days=1)
        else:
            hour, minute = int(civil["hour"]), int(civil["minute"])
            start = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    except (ValueError, OverflowError):
        raise NotADeadline(f"“{typed[:40]}” is no time: type {EXAMPLES}") from None
    return start.astimezone(UTC)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise NotADeadline(
            f"there is no time zone “{name[:40]}”: give one such as Europe/Paris"
        ) from None


def _datetime(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
