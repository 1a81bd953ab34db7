"""Hindsight: a moment that has passed, and how far around it to look, as people type them. Pure.

Times are microseconds since 1970, UTC.
"""

import re
from datetime import timedelta
from zoneinfo import ZoneInfo

from bot.civil import EXAMPLES as HOURS
from bot.civil import SPAN, Civil, NotATime, civil, instant, length

_SPAN = re.compile(rf"(?:±|\+-|\+/-|last|past)? ?{SPAN}( ago)?", re.ASCII | re.I)
_PERIOD = re.compile(r"(?P<which>this|last) (?P<what>week|month)", re.ASCII | re.I)
EXAMPLES = f"{HOURS}, last week, or 2 hours ago"


def moment(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the moment that was typed; an hour alone is the last time that it was so.

    zone: the one in which it is meant where none is typed. A day alone means its beginning. Raises
    NotATime, also of what is still to come.
    """
    at = earliest(text, now=now, zone=zone)
    if at > now:
        raise NotATime(f"“{text[:40]}” is still to come: type {EXAMPLES}")
    return at


def earliest(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the first microsecond of what was typed, as above, also of what is to come."""
    return _bounds(text, now, zone)[0]


def latest(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the last microsecond of what was typed: the end of the day, or of the minute."""
    return _bounds(text, now, zone)[1]


def span(text: str) -> int:
    """Return how long `30m`, `±30 min` or `2 hours` is."""
    found = _SPAN.fullmatch(" ".join(text.split()))
    if found is None:
        raise NotATime(f"“{text[:40]}” is no span of time: type 30m, or 2 hours")
    return length(found[1], found[2])


def written(at: int, zone: str = "UTC") -> str:
    """Return `2026-03-01 14:30:05Z`, or the same in another zone without the Z."""
    if zone == "UTC":
        return f"{instant(at):%Y-%m-%d %H:%M:%SZ}"
    return f"{instant(at).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}"


def _bounds(text: str, now: int, zone: str) -> tuple[int, int]:
    typed = re.sub(r"^an? ", "1 ", " ".join(text.split()), flags=re.I)
    if typed.lower() == "now":
        return now, now
    if _SPAN.fullmatch(typed):
        at = now - span(typed)
        return at, at
    period = _PERIOD.fullmatch(typed)
    found = civil("today" if period else typed, now=now, zone=zone)
    if found is None:
        raise NotATime(f"“{typed[:40]}” is no time: type {EXAMPLES}")
    try:
        return _period(found, period) if period else _last(found, now)
    except OverflowError:
        raise NotATime(f"“{typed[:40]}” is no time: type {EXAMPLES}") from None


def _last(found: Civil, now: int) -> tuple[int, int]:
    """Return the bounds on the day that was typed, or else on the last day that had this hour."""
    if found.day is not None:
        return found.on(found.day)
    first, last = found.on(found.today)
    return found.on(found.today - timedelta(days=1)) if first > now else (first, last)


def _period(today: Civil, typed: re.Match[str]) -> tuple[int, int]:
    """Return the bounds of a week, which begins on Monday, or of a month of the calendar."""
    last = typed["which"].lower() == "last"
    if typed["what"].lower() == "week":
        first = today.today - timedelta(days=today.today.weekday() + 7 * last)
        final = first + timedelta(days=6)
    else:
        first = today.today.replace(day=1)
        first = (first - timedelta(days=1)).replace(day=1) if last else first
        final = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    return today.on(first)[0], today.on(final)[1]
