"""Dates, times and spans: parsed as people type them, formatted as people read them. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_OFFSETS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_CIVIL_TIME_PATTERN = re.compile(
    r"(?P<day>yesterday|today|tomorrow|\d{4}-\d\d-\d\d)?"
    r"(?:[ T]?(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<part>\d{1,6}))?)?)?"
    r"(?: ?(?P<zone>[+-]\d\d(?::?\d\d)?|[A-Za-z]\S*))?",
    re.ASCII | re.IGNORECASE,
)
_UTC_OFFSET_PATTERN = re.compile(r"([+-])(\d\d):?(\d\d)?", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)
# How long: `30m`, `2 hours`. Its groups are what `length` takes.
SPAN_PATTERN = r"(\d{1,4}) ?(m|min|minutes?|h|hours?|d|days?|w|weeks?)"
_UNIT_NAMES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
CIVIL_EXAMPLES = "02:00, yesterday 14:30, 2026-03-01 02:00 Europe/Paris"


class InvalidTimeError(ValueError):
    """The words name no time, or not one alone. The message says what can be typed."""


@dataclass(frozen=True)
class CivilTime:
    """What was typed. day: None if only an hour was. hour: None if only a day was.

    part: how many microseconds the last unit that was typed lasts.
    """

    day: date | None
    time_of_day: time | None
    precision: int
    zone: tzinfo
    today: date

    def compute_bounds(self, day: date) -> tuple[int, int]:
        """Return its first and last microsecond on a day. Raises NotATime if it is not once."""
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
    """Understand a day, an hour or both; None if it is neither.

    zone: the one in which it is meant where none is typed. Raises NotATime for a zone or a day
    that there is not.
    """
    typed = _CIVIL_TIME_PATTERN.fullmatch(text)
    if typed is None or not (typed["day"] or typed["hour"]):
        return None
    meant = _parse_zone(typed["zone"] or zone)
    try:
        today = to_datetime(now).astimezone(meant).date()
        return CivilTime(
            _parse_day(typed["day"], today),
            _parse_time_of_day(typed),
            _parse_precision(typed),
            meant,
            today,
        )
    except (ValueError, OverflowError):
        return None


def is_time_zone(name: str) -> bool:
    """Say whether there is such a time zone."""
    try:
        _parse_zone(name)
    except InvalidTimeError:
        return False
    return True


def span_to_microseconds(count: str, unit: str) -> int:
    """Return how many microseconds so many of a unit are, by the groups of SPAN."""
    return timedelta(**{_UNIT_NAMES[unit[0].lower()]: int(count)}) // _MICROSECOND


def to_datetime(at: int) -> datetime:
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
    return 1_000_000 if match["second"] else 60_000_000


def _parse_zone(name: str) -> tzinfo:
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
            f"there is no time zone “{name[:40]}”: give one such as Europe/Paris, or +01:00"
        ) from None


def _check_unambiguous(at: datetime) -> datetime:
    """Return it if clocks there show it once on that day; they skip an hour, and repeat one."""
    sooner, later = (at.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    if sooner == later:
        return sooner
    said = f"{at:%H:%M} on {at:%Y-%m-%d} in {at.tzinfo}"
    if sooner.astimezone(at.tzinfo).replace(tzinfo=None) != at.replace(tzinfo=None):
        raise InvalidTimeError(f"there is no {said}, where the clocks skip it: type another time")
    ways = (at.replace(fold=fold).isoformat(" ", "minutes") for fold in (0, 1))
    raise InvalidTimeError(f"{said} is twice: type {' or '.join(ways)}")


_SPAN_REGEX = re.compile(SPAN_PATTERN, re.ASCII | re.I)
DEADLINE_EXAMPLES = "18:00, tomorrow 18:00, 2026-03-01 14:30 Europe/Paris, or 4 hours"


def parse_deadline(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the moment that was typed. A day alone means its end, and an hour alone is today's.

    zone: the one in which it is meant where none is typed. Raises NotATime, also of what is past.
    """
    at = _parse_future_moment(" ".join(text.split()), now, zone)
    if at <= now:
        raise InvalidTimeError(f"{format_deadline(at)} has passed already")
    return at


def format_deadline(at: int) -> str:
    """Return `2026-03-01 14:30 UTC`."""
    return f"{to_datetime(at):%Y-%m-%d %H:%M} UTC"


def _parse_future_moment(text: str, now: int, zone: str) -> int:
    span = _SPAN_REGEX.fullmatch(text)
    try:
        if span:
            return now + span_to_microseconds(span[1], span[2])
        found = parse_civil_time(text, now=now, zone=zone)
        if found is not None:
            first, last = found.compute_bounds(found.day or found.today)
            return last + 1 if found.time_of_day is None else first
    except OverflowError:
        pass
    raise InvalidTimeError(f"“{text[:40]}” is no time: type {DEADLINE_EXAMPLES}")


_PAST_SPAN_REGEX = re.compile(
    rf"(?:±|\+-|\+/-|last|past)? ?{SPAN_PATTERN}( ago)?", re.ASCII | re.I
)
_PERIOD_REGEX = re.compile(r"(?P<which>this|last) (?P<what>week|month)", re.ASCII | re.I)
PAST_EXAMPLES = f"{CIVIL_EXAMPLES}, last week, or 2 hours ago"


def parse_past_moment(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the moment that was typed; an hour alone is the last time that it was so.

    zone: the one in which it is meant where none is typed. A day alone means its beginning. Raises
    NotATime, also of what is still to come.
    """
    at = parse_earliest_moment(text, now=now, zone=zone)
    if at > now:
        raise InvalidTimeError(f"“{text[:40]}” is still to come: type {PAST_EXAMPLES}")
    return at


def parse_earliest_moment(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the first microsecond of what was typed, as above, also of what is to come."""
    return _parse_bounds(text, now, zone)[0]


def parse_latest_moment(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the last microsecond of what was typed: the end of the day, or of the minute."""
    return _parse_bounds(text, now, zone)[1]


def parse_span(text: str) -> int:
    """Return how long `30m`, `±30 min` or `2 hours` is."""
    found = _PAST_SPAN_REGEX.fullmatch(" ".join(text.split()))
    if found is None:
        raise InvalidTimeError(f"“{text[:40]}” is no span of time: type 30m, or 2 hours")
    return span_to_microseconds(found[1], found[2])


def format_moment(at: int, zone: str = "UTC") -> str:
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
    found = parse_civil_time("today" if period else typed, now=now, zone=zone)
    if found is None:
        raise InvalidTimeError(f"“{typed[:40]}” is no time: type {PAST_EXAMPLES}")
    try:
        return (
            _compute_period_bounds(found, period) if period else _compute_last_bounds(found, now)
        )
    except OverflowError:
        raise InvalidTimeError(f"“{typed[:40]}” is no time: type {PAST_EXAMPLES}") from None


def _compute_last_bounds(civil_time: CivilTime, now: int) -> tuple[int, int]:
    """Return the bounds on the day that was typed, or else on the last day that had this hour."""
    if civil_time.day is not None:
        return civil_time.compute_bounds(civil_time.day)
    first, last = civil_time.compute_bounds(civil_time.today)
    return (
        civil_time.compute_bounds(civil_time.today - timedelta(days=1))
        if first > now
        else (first, last)
    )


def _compute_period_bounds(today: CivilTime, match: re.Match[str]) -> tuple[int, int]:
    """Return the bounds of a week, which begins on Monday, or of a month of the calendar."""
    last = match["which"].lower() == "last"
    if match["what"].lower() == "week":
        first = today.today - timedelta(days=today.today.weekday() + 7 * last)
        final = first + timedelta(days=6)
    else:
        first = today.today.replace(day=1)
        first = (first - timedelta(days=1)).replace(day=1) if last else first
        final = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    return today.compute_bounds(first)[0], today.compute_bounds(final)[1]


_SECOND = 1_000_000


def format_iso(at: int) -> str:
    """Return a moment for programs, exactly and as the API does: `2026-03-01T14:30:05.000001Z`."""
    return f"{to_datetime(at).replace(tzinfo=None).isoformat()}Z"


def format_utc(at: int) -> str:
    """Return `2026-03-01 14:30:05 UTC`."""
    return f"{to_datetime(at).isoformat(' ', 'seconds')[:19]} UTC"


def format_span(microseconds: int) -> str:
    """Return how long that is in two units at most: `4 min 10 s`. length: microseconds."""
    seconds = max(microseconds, 0) / _SECOND
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
