"""Dates, times and spans: parsed as people type them, formatted as people read them. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_TYPED = re.compile(
    r"(?P<day>yesterday|today|tomorrow|\d{4}-\d\d-\d\d)?"
    r"(?:[ T]?(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<part>\d{1,6}))?)?)?"
    r"(?: ?(?P<zone>[+-]\d\d(?::?\d\d)?|[A-Za-z]\S*))?",
    re.ASCII | re.IGNORECASE,
)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)
# How long: `30m`, `2 hours`. Its groups are what `length` takes.
SPAN = r"(\d{1,4}) ?(m|min|minutes?|h|hours?|d|days?|w|weeks?)"
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
CIVIL_EXAMPLES = "02:00, yesterday 14:30, 2026-03-01 02:00 Europe/Paris"


class NotATime(ValueError):
    """The words name no time, or not one alone. The message says what can be typed."""


@dataclass(frozen=True)
class CivilTime:
    """What was typed. day: None if only an hour was. hour: None if only a day was.

    part: how many microseconds the last unit that was typed lasts.
    """

    day: date | None
    hour: time | None
    part: int
    zone: tzinfo
    today: date

    def on(self, day: date) -> tuple[int, int]:
        """Return its first and last microsecond on a day. Raises NotATime if it is not once."""
        if self.hour is None:
            first, after = (
                datetime.combine(day + timedelta(days=more), time(), self.zone) for more in (0, 1)
            )
            return to_micros(first), to_micros(after) - 1
        at = to_micros(_once(datetime.combine(day, self.hour, self.zone)))
        return at, at + self.part - 1


def parse_civil(text: str, *, now: int, zone: str = "UTC") -> CivilTime | None:
    """Understand a day, an hour or both; None if it is neither.

    zone: the one in which it is meant where none is typed. Raises NotATime for a zone or a day
    that there is not.
    """
    typed = _TYPED.fullmatch(text)
    if typed is None or not (typed["day"] or typed["hour"]):
        return None
    meant = _zone(typed["zone"] or zone)
    try:
        today = to_datetime(now).astimezone(meant).date()
        return CivilTime(_day(typed["day"], today), _hour(typed), _part(typed), meant, today)
    except (ValueError, OverflowError):
        return None


def is_time_zone(name: str) -> bool:
    """Say whether there is such a time zone."""
    try:
        _zone(name)
    except NotATime:
        return False
    return True


def span_in_micros(count: str, unit: str) -> int:
    """Return how many microseconds so many of a unit are, by the groups of SPAN."""
    return timedelta(**{_UNITS[unit[0].lower()]: int(count)}) // _MICROSECOND


def to_datetime(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def to_micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _day(typed: str | None, today: date) -> date | None:
    if not typed:
        return None
    word = typed.lower()
    return today + timedelta(days=_DAYS[word]) if word in _DAYS else date.fromisoformat(word)


def _hour(typed: re.Match[str]) -> time | None:
    if not typed["hour"]:
        return None
    part = int((typed["part"] or "").ljust(6, "0"))
    return time(int(typed["hour"]), int(typed["minute"]), int(typed["second"] or 0), part)


def _part(typed: re.Match[str]) -> int:
    if typed["part"]:
        return 1
    return 1_000_000 if typed["second"] else 60_000_000


def _zone(name: str) -> tzinfo:
    offset = _OFFSET.fullmatch(name)
    if offset:
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        if ahead < timedelta(hours=24):
            return timezone(-ahead if offset[1] == "-" else ahead)
    elif name.upper() in {"Z", "UTC", "ETC/UTC"}:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise NotATime(
            f"there is no time zone “{name[:40]}”: give one such as Europe/Paris, or +01:00"
        ) from None


def _once(at: datetime) -> datetime:
    """Return it if clocks there show it once on that day; they skip an hour, and repeat one."""
    sooner, later = (at.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    if sooner == later:
        return sooner
    said = f"{at:%H:%M} on {at:%Y-%m-%d} in {at.tzinfo}"
    if sooner.astimezone(at.tzinfo).replace(tzinfo=None) != at.replace(tzinfo=None):
        raise NotATime(f"there is no {said}, where the clocks skip it: type another time")
    ways = (at.replace(fold=fold).isoformat(" ", "minutes") for fold in (0, 1))
    raise NotATime(f"{said} is twice: type {' or '.join(ways)}")


_SPAN = re.compile(SPAN, re.ASCII | re.I)
DEADLINE_EXAMPLES = "18:00, tomorrow 18:00, 2026-03-01 14:30 Europe/Paris, or 4 hours"


def parse_deadline(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the moment that was typed. A day alone means its end, and an hour alone is today's.

    zone: the one in which it is meant where none is typed. Raises NotATime, also of what is past.
    """
    at = _typed(" ".join(text.split()), now, zone)
    if at <= now:
        raise NotATime(f"{format_deadline(at)} has passed already")
    return at


def format_deadline(at: int) -> str:
    """Return `2026-03-01 14:30 UTC`."""
    return f"{to_datetime(at):%Y-%m-%d %H:%M} UTC"


def _typed(typed: str, now: int, zone: str) -> int:
    span = _SPAN.fullmatch(typed)
    try:
        if span:
            return now + span_in_micros(span[1], span[2])
        found = parse_civil(typed, now=now, zone=zone)
        if found is not None:
            first, last = found.on(found.day or found.today)
            return last + 1 if found.hour is None else first
    except OverflowError:
        pass
    raise NotATime(f"“{typed[:40]}” is no time: type {DEADLINE_EXAMPLES}")


_HINDSIGHT_SPAN = re.compile(rf"(?:±|\+-|\+/-|last|past)? ?{SPAN}( ago)?", re.ASCII | re.I)
_PERIOD = re.compile(r"(?P<which>this|last) (?P<what>week|month)", re.ASCII | re.I)
PAST_EXAMPLES = f"{CIVIL_EXAMPLES}, last week, or 2 hours ago"


def parse_past_moment(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the moment that was typed; an hour alone is the last time that it was so.

    zone: the one in which it is meant where none is typed. A day alone means its beginning. Raises
    NotATime, also of what is still to come.
    """
    at = parse_earliest(text, now=now, zone=zone)
    if at > now:
        raise NotATime(f"“{text[:40]}” is still to come: type {PAST_EXAMPLES}")
    return at


def parse_earliest(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the first microsecond of what was typed, as above, also of what is to come."""
    return _bounds(text, now, zone)[0]


def parse_latest(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the last microsecond of what was typed: the end of the day, or of the minute."""
    return _bounds(text, now, zone)[1]


def parse_span(text: str) -> int:
    """Return how long `30m`, `±30 min` or `2 hours` is."""
    found = _HINDSIGHT_SPAN.fullmatch(" ".join(text.split()))
    if found is None:
        raise NotATime(f"“{text[:40]}” is no span of time: type 30m, or 2 hours")
    return span_in_micros(found[1], found[2])


def format_moment(at: int, zone: str = "UTC") -> str:
    """Return `2026-03-01 14:30:05Z`, or the same in another zone without the Z."""
    if zone == "UTC":
        return f"{to_datetime(at):%Y-%m-%d %H:%M:%SZ}"
    return f"{to_datetime(at).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}"


def _bounds(text: str, now: int, zone: str) -> tuple[int, int]:
    typed = re.sub(r"^an? ", "1 ", " ".join(text.split()), flags=re.I)
    if typed.lower() == "now":
        return now, now
    if _HINDSIGHT_SPAN.fullmatch(typed):
        at = now - parse_span(typed)
        return at, at
    period = _PERIOD.fullmatch(typed)
    found = parse_civil("today" if period else typed, now=now, zone=zone)
    if found is None:
        raise NotATime(f"“{typed[:40]}” is no time: type {PAST_EXAMPLES}")
    try:
        return _period(found, period) if period else _last(found, now)
    except OverflowError:
        raise NotATime(f"“{typed[:40]}” is no time: type {PAST_EXAMPLES}") from None


def _last(found: CivilTime, now: int) -> tuple[int, int]:
    """Return the bounds on the day that was typed, or else on the last day that had this hour."""
    if found.day is not None:
        return found.on(found.day)
    first, last = found.on(found.today)
    return found.on(found.today - timedelta(days=1)) if first > now else (first, last)


def _period(today: CivilTime, typed: re.Match[str]) -> tuple[int, int]:
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


_SECOND = 1_000_000


def format_iso(at: int) -> str:
    """Return a moment for programs, exactly and as the API does: `2026-03-01T14:30:05.000001Z`."""
    return f"{to_datetime(at).replace(tzinfo=None).isoformat()}Z"


def format_utc(at: int) -> str:
    """Return `2026-03-01 14:30:05 UTC`."""
    return f"{to_datetime(at).isoformat(' ', 'seconds')[:19]} UTC"


def format_span(length: int) -> str:
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
