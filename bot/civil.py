"""Civil time: a day and an hour as people type them, in their zone or one that they name. Pure.

Times are microseconds since 1970, UTC.
"""

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
EXAMPLES = "02:00, yesterday 14:30, 2026-03-01 02:00 Europe/Paris"


class NotATime(ValueError):
    """The words name no time, or not one alone. The message says what can be typed."""


@dataclass(frozen=True)
class Civil:
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
            return micros(first), micros(after) - 1
        at = micros(_once(datetime.combine(day, self.hour, self.zone)))
        return at, at + self.part - 1


def civil(text: str, *, now: int, zone: str = "UTC") -> Civil | None:
    """Understand a day, an hour or both; None if it is neither.

    zone: the one in which it is meant where none is typed. Raises NotATime for a zone or a day
    that there is not.
    """
    typed = _TYPED.fullmatch(text)
    if typed is None or not (typed["day"] or typed["hour"]):
        return None
    meant = _zone(typed["zone"] or zone)
    try:
        today = instant(now).astimezone(meant).date()
        return Civil(_day(typed["day"], today), _hour(typed), _part(typed), meant, today)
    except (ValueError, OverflowError):
        return None


def is_zone(name: str) -> bool:
    """Say whether there is such a time zone."""
    try:
        _zone(name)
    except NotATime:
        return False
    return True


def length(count: str, unit: str) -> int:
    """Return how many microseconds so many of a unit are, by the groups of SPAN."""
    return timedelta(**{_UNITS[unit[0].lower()]: int(count)}) // _MICROSECOND


def instant(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def micros(at: datetime) -> int:
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
