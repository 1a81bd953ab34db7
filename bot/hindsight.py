"""Hindsight: a moment that has passed, and how far around it to look, as people type them. Pure.

Times are microseconds since 1970, UTC.
"""

import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPAN = re.compile(
    r"(?:±|\+-|\+/-)? ?(\d{1,4}) ?(m|min|minutes?|h|hours?|d|days?|w|weeks?)( ago)?",
    re.ASCII | re.I,
)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_CIVIL = re.compile(
    r"(?P<day>today|yesterday|\d{4}-\d\d-\d\d)?"
    r"(?:[ T]?(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::\d\d)?)?(?: ?(?P<zone>[A-Za-z]\S*))?",
    re.ASCII,
)
EXAMPLES = "02:00, yesterday 14:30, 2026-03-01 02:00 Europe/Paris, or 2 hours ago"


class NotAMoment(ValueError):
    """The words name no time that has passed. The message says what can be typed."""


def moment(text: str, *, now: int) -> int:
    """Return the moment that was typed; an hour alone is the last time that it was so.

    Without a zone it is UTC; a day alone means its beginning.
    """
    typed = " ".join(text.split())
    ago = _SPAN.fullmatch(typed)
    civil = _CIVIL.fullmatch(typed) if typed else None
    if ago:
        return now - span(typed)
    if civil is None or not (civil["day"] or civil["hour"]):
        raise NotAMoment(f"“{typed[:40]}” is no time: type {EXAMPLES}")
    at = _micros(_civil(civil, typed, now))
    if at > now:
        raise NotAMoment(f"“{typed[:40]}” is still to come: type {EXAMPLES}")
    return at


def span(text: str) -> int:
    """Return how long `30m`, `±30 min` or `2 hours` is."""
    found = _SPAN.fullmatch(" ".join(text.split()))
    if found is None:
        raise NotAMoment(f"“{text[:40]}” is no span of time: type 30m, or 2 hours")
    length = timedelta(**{_UNITS[found[2][0].lower()]: int(found[1])})
    return length // timedelta(microseconds=1)


def written(at: int) -> str:
    """Return `2026-03-01 14:30:05Z`."""
    return f"{_EPOCH + timedelta(microseconds=at):%Y-%m-%d %H:%M:%SZ}"


def _civil(typed: re.Match[str], text: str, now: int) -> datetime:
    try:
        zone = ZoneInfo({"Z": "UTC"}.get(typed["zone"] or "Z", typed["zone"] or "UTC"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise NotAMoment(
            f"there is no time zone “{typed['zone'][:40]}”: give one such as Europe/Paris"
        ) from None
    at_once = (_EPOCH + timedelta(microseconds=now)).astimezone(zone)
    today = at_once.date()
    named = {"today": today, "yesterday": today - timedelta(days=1), None: today}
    try:
        day: date = named.get(typed["day"]) or date.fromisoformat(typed["day"])
        hour, minute = int(typed["hour"] or 0), int(typed["minute"] or 0)
        found = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
        if typed["day"] is None and found > at_once:
            found -= timedelta(days=1)
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise NotAMoment(f"“{text[:40]}” is no time: type {EXAMPLES}") from None


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
