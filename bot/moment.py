"""Moments: times and spans as people read and type them. Pure.

Times are microseconds since 1970, UTC.
"""

import re
from datetime import UTC, datetime, timedelta

_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO = re.compile(
    r"(\d{1,4}) ?(m|min|minutes?|h|hours?|d|days?|w|weeks?)( ago)?", re.ASCII | re.IGNORECASE
)
_FORMS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ")


class NotAMoment(ValueError):
    """The words name no time. The message says what can be typed."""


def iso(at: int) -> str:
    """Return `2026-03-01T14:30:05Z`."""
    return f"{_datetime(at).isoformat(timespec='seconds')[:19]}Z"


def utc(at: int) -> str:
    """Return `2026-03-01 14:30:05 UTC`."""
    return f"{_datetime(at).isoformat(' ', 'seconds')[:19]} UTC"


def span(length: int) -> str:
    """Return how long that is in two units at most: `4 min 10 s`. length: microseconds."""
    seconds = max(length, 0) / _SECOND
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, name, below, small in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {name} {rest} {small}" if rest else f"{whole // size} {name}"
    return f"{whole} s"


def earliest(text: str, *, now: int) -> int:
    """Return the first microsecond of what was typed: `2 h`, `yesterday`, `2026-03-01 14:30`."""
    return _bounds(text, now)[0]


def latest(text: str, *, now: int) -> int:
    """Return the last microsecond of what was typed: the end of the day, or of the minute."""
    return _bounds(text, now)[1]


def _bounds(text: str, now: int) -> tuple[int, int]:
    typed = " ".join(text.split())
    today = _datetime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    word = typed.lower()
    if word in {"today", "yesterday"}:
        return _day(today - timedelta(days=word == "yesterday"))
    ago = _AGO.fullmatch(typed)
    if ago:
        back = timedelta(**{_UNITS[ago[2][0].lower()]: int(ago[1])})
        at = now - back // timedelta(microseconds=1)
        return at, at
    return _written(typed.removesuffix(" UTC"))


def _written(typed: str) -> tuple[int, int]:
    try:
        return _day(datetime.strptime(typed, "%Y-%m-%d").replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        pass
    for form in _FORMS:
        try:
            at = _micros(datetime.strptime(typed, form).replace(tzinfo=UTC))
        except ValueError:
            continue
        return at, at + (_SECOND if "%S" in form else 60 * _SECOND) - 1
    raise NotAMoment(
        f"“{typed[:40]}” is no time: type 2 h, 3 days, yesterday, 2026-03-01 or 2026-03-01 14:30"
    )


def _day(start: datetime) -> tuple[int, int]:
    return _micros(start), _micros(start) + 86400 * _SECOND - 1


def _datetime(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
