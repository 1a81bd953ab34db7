"""Dates, times and spans: parsed as people type them, formatted as people read them. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bot.model.errors import InvalidRequestError

# Microseconds.
SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_OFFSETS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_CIVIL_TIME_PATTERN = re.compile(
    r"(?P<day>yesterday|today|tomorrow|\d{4}-\d\d-\d\d)?"
    r"(?:[ T]?(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<part>\d{1,6}))?)?)?"
    # After the name of a day, a zone needs a space: the rest is a typing error.
    r"(?:(?: |(?<=\d))(?P<zone>[+-]\d\d(?::?\d\d)?|[A-Za-z]\S*))?",
    re.ASCII | re.IGNORECASE,
)
_UTC_OFFSET_PATTERN = re.compile(r"([+-])(\d\d):?(\d\d)?", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)
# The last time, in microseconds since 1970, which has a date in each time zone.
LAST_TIME = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
# A time in UTC within a sentence, as the functions of this module format it.
_UTC_PATTERN = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: UTC\b|Z\b))")
# `30m`, `2 hours`. The groups are the arguments of span_to_microseconds().
SPAN_PATTERN = r"(\d{1,4}) ?(m|min|minutes?|h|hours?|d|days?|w|weeks?)"
_UNIT_NAMES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
CIVIL_EXAMPLES = "02:00, yesterday 14:30, 2026-03-01 02:00 Europe/Paris"


class InvalidTimeError(InvalidRequestError, ValueError):
    """The text is not a time, or is ambiguous. The message says what to type."""


@dataclass(frozen=True)
class CivilTime:
    """A day, a time of day or both, as typed."""

    day: date | None
    """None if only a time of day was typed."""
    time_of_day: time | None
    """None if only a day was typed."""
    precision: int
    """Microseconds in the smallest unit that was typed."""
    zone: tzinfo
    today: date

    def compute_bounds(self, day: date) -> tuple[int, int]:
        """Return the first and last microsecond on a day. Raises InvalidTimeError if ambiguous."""
        if self.time_of_day is None:
            first, after = (
                datetime.combine(day + timedelta(days=more), time(), self.zone) for more in (0, 1)
            )
            return to_microseconds(first), to_microseconds(after) - 1
        at = to_microseconds(
            _check_unambiguous(datetime.combine(day, self.time_of_day, self.zone))
        )
        return at, at + self.precision - 1


def parse_civil_time(text: str, *, now: int, zone: str = "UTC") -> CivilTime | None:
    """Parse a day, a time of day or both; return None for other text.

    zone: used if the text has none. Raises InvalidTimeError for an unknown zone.
    """
    typed = _CIVIL_TIME_PATTERN.fullmatch(text)
    if typed is None or not (typed["day"] or typed["hour"]):
        return None
    tz = parse_time_zone(typed["zone"] or zone)
    try:
        today = to_datetime(now).astimezone(tz).date()
        return CivilTime(
            _parse_day(typed["day"], today),
            _parse_time_of_day(typed),
            _parse_precision(typed),
            tz,
            today,
        )
    except (ValueError, OverflowError):
        return None


def is_time_zone(name: str) -> bool:
    """Return whether the time zone exists."""
    try:
        parse_time_zone(name)
    except InvalidTimeError:
        return False
    return True


def span_to_microseconds(count: str, unit: str) -> int:
    """Return microseconds for the groups of SPAN_PATTERN."""
    return timedelta(**{_UNIT_NAMES[unit[0].lower()]: int(count)}) // _MICROSECOND


def to_datetime(at: int) -> datetime:
    """Return a time from 0 to LAST_TIME. Raises OverflowError long before or after."""
    return _EPOCH + timedelta(microseconds=at)


def to_microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _parse_day(text: str | None, today: date) -> date | None:
    if not text:
        return None
    word = text.lower()
    return (
        today + timedelta(days=_DAY_OFFSETS[word])
        if word in _DAY_OFFSETS
        else date.fromisoformat(word)
    )


def _parse_time_of_day(match: re.Match[str]) -> time | None:
    if not match["hour"]:
        return None
    part = int((match["part"] or "").ljust(6, "0"))
    return time(int(match["hour"]), int(match["minute"]), int(match["second"] or 0), part)


def _parse_precision(match: re.Match[str]) -> int:
    if match["part"]:
        return 1
    return SECOND if match["second"] else MINUTE


def parse_time_zone(name: str) -> tzinfo:
    """Parse `Europe/Paris`, `UTC` or `+01:00`. Raises InvalidTimeError."""
    offset = _UTC_OFFSET_PATTERN.fullmatch(name)
    if offset:
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        if ahead < timedelta(hours=24):
            return timezone(-ahead if offset[1] == "-" else ahead)
    elif name.upper() in {"Z", "UTC", "ETC/UTC"}:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidTimeError(
            f"unknown time zone “{name[:40]}”: use one such as Europe/Paris, or +01:00"
        ) from None


def _check_unambiguous(at: datetime) -> datetime:
    """Return *at* if the clocks of its zone show it exactly once: they skip and repeat an hour."""
    sooner, later = (at.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    if sooner == later:
        return sooner
    text = f"{at:%H:%M} on {at:%Y-%m-%d} in {at.tzinfo}"
    if sooner.astimezone(at.tzinfo).replace(tzinfo=None) != at.replace(tzinfo=None):
        raise InvalidTimeError(f"{text} does not exist: the clocks skip it. Type another time")
    choices = (at.replace(fold=fold).isoformat(" ", "minutes") for fold in (0, 1))
    raise InvalidTimeError(f"{text} occurs twice: type {' or '.join(choices)}")


_SPAN_REGEX = re.compile(SPAN_PATTERN, re.ASCII | re.I)
DEADLINE_EXAMPLES = "18:00, tomorrow 18:00, 2026-03-01 14:30 Europe/Paris, or 4 hours"


def parse_deadline(text: str, *, now: int, zone: str = "UTC") -> int:
    """Parse a time in the future. A day alone means its end; a time of day alone is today's.

    zone: used if the text has none. Raises InvalidTimeError, also for a time in the past.
    """
    at = _parse_future_time(" ".join(text.split()), now, zone)
    if at <= now:
        raise InvalidTimeError(f"{format_deadline(at)} has passed already")
    return at


def list_days(now: int, zone: str, offsets: range) -> list[tuple[date, tuple[int, int]]]:
    """Return days in a time zone with their bounds in microseconds. offsets: from today."""
    tz = parse_time_zone(zone)
    today = to_datetime(now).astimezone(tz).date()
    days = [today + timedelta(days=offset) for offset in (*offsets, offsets.stop)]
    starts = [to_microseconds(datetime.combine(day, time(), tz)) for day in days]
    return [*zip(days, pairwise(starts), strict=False)]


def format_deadline(at: int) -> str:
    """Return `2026-03-01 14:30 UTC`."""
    return f"{to_datetime(at):%Y-%m-%d %H:%M} UTC"


def _parse_future_time(text: str, now: int, zone: str) -> int:
    span = _SPAN_REGEX.fullmatch(text)
    try:
        if span:
            return now + span_to_microseconds(span[1], span[2])
        civil_time = parse_civil_time(text, now=now, zone=zone)
        if civil_time is not None:
            first, last = civil_time.compute_bounds(civil_time.day or civil_time.today)
            return last + 1 if civil_time.time_of_day is None else first
    except OverflowError:
        pass
    raise InvalidTimeError(f"“{text[:40]}” is not a time: type {DEADLINE_EXAMPLES}")


_PAST_SPAN_REGEX = re.compile(
    rf"(?:±|\+-|\+/-|last|past)? ?{SPAN_PATTERN}( ago)?", re.ASCII | re.I
)
_PERIOD_REGEX = re.compile(r"(?P<which>this|last) (?P<what>week|month)", re.ASCII | re.I)
PAST_EXAMPLES = f"{CIVIL_EXAMPLES}, last week, or 2 hours ago"


def parse_past_time(text: str, *, now: int, zone: str = "UTC") -> int:
    """Parse a time in the past. A day alone means its start; a time of day alone is the last one.

    zone: used if the text has none. Raises InvalidTimeError, also for a time in the future.
    """
    at = parse_earliest_time(text, now=now, zone=zone)
    if at > now:
        raise InvalidTimeError(f"“{text[:40]}” is in the future: type {PAST_EXAMPLES}")
    return at


DEFAULT_SPAN = "1 h"


def parse_time_and_span(when: str, within: str, *, now: int, zone: str = "UTC") -> tuple[int, int]:
    """Return a time in the past and the span before and after it, in microseconds.

    Args:
        when: `02:00`, `2 hours ago`; "" for now. `2 h` is the last two hours: now, and this span.
        within: The span; "" for the default, an hour.
        zone: Used if the text has none.

    Raises:
        InvalidTimeError: One of the texts is invalid.
    """
    if not within and is_recent_span(when):
        return now, parse_span(when)
    at = parse_past_time(when, now=now, zone=zone) if when else now
    return at, parse_span(within or DEFAULT_SPAN)


def is_recent_span(text: str) -> bool:
    """Return whether a text is a span that ends now, such as `2 h` or `last 2 hours`."""
    match = _PAST_SPAN_REGEX.fullmatch(" ".join(text.split()))
    return match is not None and match[3] is None


def parse_earliest_time(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the first microsecond of a time, like parse_past_time(), also in the future."""
    return _parse_bounds(text, now, zone)[0]


def parse_latest_time(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the last microsecond of a time: the end of the day, or of the minute."""
    return _parse_bounds(text, now, zone)[1]


def parse_span(text: str) -> int:
    """Return microseconds for `30m`, `±30 min` or `2 hours`."""
    match = _PAST_SPAN_REGEX.fullmatch(" ".join(text.split()))
    if match is None:
        raise InvalidTimeError(f"“{text[:40]}” is not a time span: type 30m, or 2 hours")
    return span_to_microseconds(match[1], match[2])


def format_timestamp(at: int, zone: str = "UTC") -> str:
    """Return `2026-03-01 14:30:05Z`, or the same in another zone without the Z."""
    if zone == "UTC":
        return f"{to_datetime(at):%Y-%m-%d %H:%M:%SZ}"
    return f"{to_datetime(at).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}"


def _parse_bounds(text: str, now: int, zone: str) -> tuple[int, int]:
    typed = re.sub(r"^an? ", "1 ", " ".join(text.split()), flags=re.I)
    if typed.lower() == "now":
        return now, now
    if _PAST_SPAN_REGEX.fullmatch(typed):
        at = now - parse_span(typed)
        return at, at
    period = _PERIOD_REGEX.fullmatch(typed)
    civil_time = parse_civil_time("today" if period else typed, now=now, zone=zone)
    if civil_time is None:
        raise InvalidTimeError(f"“{typed[:40]}” is not a time: type {PAST_EXAMPLES}")
    try:
        return (
            _compute_period_bounds(civil_time, period)
            if period
            else _compute_last_bounds(civil_time, now)
        )
    except OverflowError:
        raise InvalidTimeError(f"“{typed[:40]}” is not a time: type {PAST_EXAMPLES}") from None


def _compute_last_bounds(civil_time: CivilTime, now: int) -> tuple[int, int]:
    """Return the bounds on the typed day, else on the last day that had this time of day."""
    if civil_time.day is not None:
        return civil_time.compute_bounds(civil_time.day)
    first, last = civil_time.compute_bounds(civil_time.today)
    return (
        civil_time.compute_bounds(civil_time.today - timedelta(days=1))
        if first > now
        else (first, last)
    )


def _compute_period_bounds(today: CivilTime, match: re.Match[str]) -> tuple[int, int]:
    """Return the bounds of a week, which starts on Monday, or of a calendar month."""
    last = match["which"].lower() == "last"
    if match["what"].lower() == "week":
        first = today.today - timedelta(days=today.today.weekday() + 7 * last)
        final = first + timedelta(days=6)
    else:
        first = today.today.replace(day=1)
        first = (first - timedelta(days=1)).replace(day=1) if last else first
        final = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    return today.compute_bounds(first)[0], today.compute_bounds(final)[1]


def format_iso(at: int) -> str:
    """Return a time in ISO 8601, as in the API: `2026-03-01T14:30:05.000001Z`."""
    return f"{to_datetime(at).replace(tzinfo=None).isoformat()}Z"


def format_utc(at: int) -> str:
    """Return `2026-03-01 14:30:05 UTC`."""
    return f"{to_datetime(at).isoformat(' ', 'seconds')[:19]} UTC"


def split_times(text: str) -> list[tuple[str, datetime | None]]:
    """Return a sentence in parts, to show its UTC times in the zone of the reader.

    Each part comes with the time that it is, or with None if it is other text.
    """
    return [(part, _parse_utc(part)) for part in _UTC_PATTERN.split(text) if part]


def _parse_utc(text: str) -> datetime | None:
    if not _UTC_PATTERN.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.removesuffix("Z").removesuffix(" UTC")).replace(
            tzinfo=UTC
        )
    except ValueError:
        return None


def format_span(microseconds: int) -> str:
    """Return a time span in at most two units: `4 min 10 s`, `40 ms`."""
    seconds = max(microseconds, 0) / SECOND
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    total = int(seconds)
    for size, name, below, small in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if total >= size:
            rest = total % size // below
            return f"{total // size} {name} {rest} {small}" if rest else f"{total // size} {name}"
    return f"{total} s"
