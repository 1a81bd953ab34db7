"""Read the events of a calendar as shifts, and say which ones are not understood.

What is not understood names no one: not its people, and not a person instead of another.

Formats: RFC 5545; an event of PagerDuty has an ATTENDEE that is only an address.
"""

import re
import signal
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, cast
from zoneinfo import ZoneInfo

import icalendar
import recurring_ical_events
from icalendar.parser import Contentlines
from icalendar.prop import vDuration
from icalendar.timezone import tzp

from bot.features.oncall.shift import Shift
from bot.model.text import escape_to_one_line

_DAY = 86_400 * 1_000_000
_MAX_ADDRESSES, _MAX_TITLE_LENGTH, _MAX_PROBLEM_LENGTH = 50, 120, 200
_SERIES_SECONDS = 1.0
_ADDRESS_PATTERN = re.compile(r"[^\s<>()\[\],;:\"'@]+@[^\s<>()\[\],;:\"'@]+")
_DURATION = "X-KEYTURN-DURATION"
_DURATION_PATTERN = re.compile(r"DURATION(?:;[^:]*)?:(.*)", re.IGNORECASE)
_ZONE_PATTERN = re.compile(r"BEGIN:VTIMEZONE\r\n.*?END:VTIMEZONE\r\n", re.DOTALL | re.IGNORECASE)
_READ_COMPONENTS = {"VCALENDAR", "VEVENT", "VTIMEZONE", "STANDARD", "DAYLIGHT"}
_TIME_PROPERTIES = ("DTSTART", "DTEND", "DURATION", "RECURRENCE-ID", "RDATE", "EXDATE")
_READ_PROPERTIES = {
    *_TIME_PROPERTIES, "UID", "RRULE", "SEQUENCE", "STATUS", "SUMMARY", "ATTENDEE", "ORGANIZER",
}  # fmt: skip
_STATES = {"", "TENTATIVE", "CONFIRMED", "CANCELLED"}
# The values by which an attendee is not on duty. Unknown ones count as the default (RFC 5545).
_ABSENT = {
    "PARTSTAT": {"DECLINED", "DELEGATED"},
    "ROLE": {"NON-PARTICIPANT"},
    "CUTYPE": {"GROUP", "RESOURCE", "ROOM"},
}


@dataclass(frozen=True)
class Window:
    """The time whose shifts are read, in microseconds since 1970."""

    zone: ZoneInfo
    """The time zone of events that name none."""
    since: int
    until: int


def iterate_shifts(text: bytes, window: Window) -> Iterator[Shift]:
    """Yield the shifts of a calendar, at least those in the window.

    An event names the people on duty by its attendees who take part. Without attendees, the
    address in its summary counts, and without that its organiser. An event that is not understood
    names no one and has a problem; the others count.

    Raises:
        ValueError: The calendar is not valid.
    """
    calendar = icalendar.Calendar.from_ical(_keep_events(text))
    if not _is_cancellation(calendar):
        for events in _list_series(calendar):
            yield from _expand_series(calendar, events, window)


def _keep_events(text: bytes) -> str:
    """Return a calendar with events and valid time zones only, so that nothing else rejects it.

    Each DURATION is repeated in a property of its own, because the library parses PT24H as P1D.
    """
    lines: list[str] = []
    skipped = ""
    for line in Contentlines.from_ical(text):
        name, _, value = line.upper().partition(":")
        if not skipped and name == "BEGIN" and value.strip() not in _READ_COMPONENTS:
            skipped = value
        if not skipped:
            lines.append(line)
            if match := _DURATION_PATTERN.fullmatch(line):
                lines.append(f"{_DURATION}:{match[1]}")
        if name == "END" and value == skipped:
            skipped = ""
    return _ZONE_PATTERN.sub(_keep_valid_zone, "\r\n".join(lines))


def _keep_valid_zone(zone: re.Match[str]) -> str:
    """Return a VTIMEZONE, or "": the events that name an invalid one are not understood."""
    try:
        icalendar.Timezone.from_ical(zone[0])
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the libraries raise errors of many types
        return ""
    return zone[0]


def _is_cancellation(calendar: icalendar.Calendar) -> bool:
    """Return whether a calendar cancels its events. Raises ValueError if it only proposes them."""
    method = str(calendar.get("METHOD", "PUBLISH")).upper()
    if method not in {"PUBLISH", "REQUEST", "ADD", "CANCEL"}:
        raise ValueError(f"has METHOD:{method}, so its events are not shifts: export the calendar")
    return method == "CANCEL"


def _list_series(calendar: icalendar.Calendar) -> Collection[Sequence[icalendar.Event]]:
    """Return the events by UID: a series with its changed events."""
    series: dict[str, list[icalendar.Event]] = defaultdict(list)
    for number, event in enumerate(calendar.events):
        series[str(event.get("UID", number))].append(event)
    return series.values()


def _expand_series(
    calendar: icalendar.Calendar, events: Sequence[icalendar.Event], window: Window
) -> Sequence[Shift]:
    """Return the shifts of a series. If it is not understood, they have a problem."""
    title = (
        f"{_get_title(events[0])} (UID {escape_to_one_line(str(events[0].get('UID', 'missing')))})"
    )
    unclear = Shift(window.since, window.until, (), title[: 2 * _MAX_TITLE_LENGTH])
    problem = ""
    try:
        with _limit_time():
            problem = _find_problem(events, window.zone)
            shifts = _list_occurrences(calendar, events, window)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the libraries raise errors of many types
        return [replace(unclear, problem=_shorten_problem(problem or str(error)))]
    if not problem:
        return shifts
    # Its time zone may be any.
    return [
        replace(
            unclear,
            starts_at=one.starts_at - _DAY,
            ends_at=one.ends_at + _DAY,
            problem=_shorten_problem(problem),
        )
        for one in shifts
    ]


def _list_occurrences(
    calendar: icalendar.Calendar, events: Sequence[icalendar.Event], window: Window
) -> Sequence[Shift]:
    named = calendar.get("X-WR-TIMEZONE")
    for event in events:
        _include_last_day(event, window.zone, ZoneInfo(str(named)) if named else None)
    series = calendar.copy()
    series.subcomponents = [*events]
    # Days more on both sides, for time zones that are applied afterwards or are not known.
    start, end = (datetime.fromtimestamp(at / 1e6, UTC) for at in (window.since, window.until))
    found = recurring_ical_events.of(series).between(
        start - timedelta(days=2), end + timedelta(days=2)
    )
    return [
        _build_shift(event, window.zone)
        for event in found
        if isinstance(event, icalendar.Event) and _get_status(event) != "CANCELLED"
    ]


def _find_problem(events: Sequence[icalendar.Event], zone: ZoneInfo) -> str:
    """Return why a series is not understood; "" if it is."""
    for event in events:
        if problem := _find_event_problem(event, zone):
            return problem
    replaced = [one for event in events for one in _list_values(event.get("RECURRENCE-ID"))]
    starts = [one.start for one in events if "RECURRENCE-ID" not in one]
    if len({isinstance(one, datetime) for one in [*starts, *(one.dt for one in replaced)]}) > 1:
        return "RECURRENCE-ID and DTSTART must both be dates, or both be times"
    return ""


def _find_event_problem(event: icalendar.Event, zone: ZoneInfo) -> str:
    for name, error in event.errors:
        if name is None or name in _READ_PROPERTIES:
            return f"{name or 'a line'} is not valid: {error}"
    if problem := _find_zone_problem(event):
        return problem
    if "EXRULE" in event:
        return "EXRULE is no longer part of iCalendar: use EXDATE"
    if (status := _get_status(event)) not in _STATES:
        return f"STATUS:{status} is not known"
    if _to_microseconds(event.end, zone) < _to_microseconds(event.start, zone):
        return "it ends before it starts"
    return ""


def _find_zone_problem(event: icalendar.Event) -> str:
    """Return that a time zone is not known. Those of Windows and of VTIMEZONE are."""
    for name in _TIME_PROPERTIES:
        for value in _list_values(event.get(name)):
            tzid = value.params.get("TZID")
            if tzid is not None and tzp.timezone(str(tzid)) is None:
                return f'{name} names the time zone "{tzid}", which is not known'
    return ""


def _include_last_day(event: icalendar.Event, zone: ZoneInfo, floating: ZoneInfo | None) -> None:
    """Let a series end where its UNTIL says, though that is a date or not in UTC.

    RFC 5545 wants UNTIL in UTC; the library would end the series before its last day.

    Args:
        event: Its RRULE is changed.
        zone: The time zone of events that name none.
        floating: The same if the calendar names it, or None.
    """
    start = event.start
    for rule in _list_values(event.get("RRULE")):
        if isinstance(start, datetime) and "UNTIL" in rule:
            [until] = _list_values(rule["UNTIL"])
            if not isinstance(until, datetime):
                until = datetime.combine(until, time(23, 59, 59))
            of_start = start.tzinfo or floating
            if of_start is None and until.tzinfo is not None:
                until = until.astimezone(zone).replace(tzinfo=None)
            elif of_start is not None and until.tzinfo is None:
                until = until.replace(tzinfo=of_start).astimezone(UTC)
            rule["UNTIL"] = [until]


def _build_shift(event: icalendar.Event, zone: ZoneInfo) -> Shift:
    title = _get_title(event)
    addresses = [*dict.fromkeys(_iterate_addresses(event))]
    problem = ""
    if not _list_values(event.get("ATTENDEE")) and len(addresses) > 1:
        problem, addresses = f"its title names {' and '.join(addresses)}: invite one of them", []
    return Shift(
        _to_microseconds(event.start, zone),
        _compute_end(event, zone),
        tuple(addresses)[:_MAX_ADDRESSES],
        title,
        _shorten_problem(problem),
    )


def _iterate_addresses(event: icalendar.Event) -> Iterator[str]:
    """Yield the addresses of the people on duty, in lower case."""
    if attendees := _list_values(event.get("ATTENDEE")):
        for one in attendees:
            if _takes_part(one):
                yield from _find_address(one)
        return
    found = _ADDRESS_PATTERN.findall(str(event.get("SUMMARY", "")))
    yield from map(str.casefold, found)
    if not found:
        for one in _list_values(event.get("ORGANIZER")):
            yield from _find_address(one)


def _takes_part(attendee: Any) -> bool:
    """Return whether an attendee is a person who takes part (RFC 5545, 3.2.3, 3.2.12, 3.2.16)."""
    parameters: Mapping[str, str] = attendee.params
    return all(parameters.get(name, "").upper() not in absent for name, absent in _ABSENT.items())


def _find_address(person: Any) -> Sequence[str]:
    """Return the one address of an attendee or organiser; none if it names several."""
    # What follows a question mark are headers, such as those who get a copy.
    found = _ADDRESS_PATTERN.findall(str(person).partition("?")[0])
    return [found[0].casefold()] if len(found) == 1 else []


def _get_title(event: icalendar.Event) -> str:
    summary = " ".join(str(event.get("SUMMARY", "")).split())
    title = "".join(letter for letter in summary if letter.isprintable())[:_MAX_TITLE_LENGTH]
    return title or "event without a summary"


def _get_status(event: icalendar.Event) -> str:
    return str(event.get("STATUS", "")).upper()


def _list_values(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return cast("list[Any]", value) if isinstance(value, list) else (value,)


def _compute_end(event: icalendar.Event, zone: ZoneInfo) -> int:
    """Return when an event ends. Days of a duration are days of its zone, hours are exact.

    That is what RFC 5545, 3.3.6 says; the library adds both to the local time.
    """
    end = _to_microseconds(event.end, zone)
    if _DURATION not in event or not isinstance(event.start, datetime):
        return end
    days, _, exact = str(event[_DURATION]).partition("T")
    nominal = vDuration.from_ical(days) if days.strip("+-") != "P" else timedelta()
    hours = vDuration.from_ical(f"PT{exact}") if exact else timedelta()
    if event.end - event.start != nominal + hours:
        return end  # RDATE gives this one another end.
    return _to_microseconds(event.start + nominal, zone) + hours // timedelta(microseconds=1)


def _to_microseconds(point: date | datetime, zone: ZoneInfo) -> int:
    """Return a time since 1970. A day begins at midnight of the zone."""
    if not isinstance(point, datetime):
        point = datetime.combine(point, time())
    return round((point if point.tzinfo else point.replace(tzinfo=zone)).timestamp() * 1_000_000)


def _shorten_problem(problem: str) -> str:
    return escape_to_one_line(problem)[:_MAX_PROBLEM_LENGTH]


@contextmanager
def _limit_time() -> Generator[None]:
    """Limit the time of the processor for one series. Raises ValueError."""

    def stop(_number: int, _frame: object) -> None:
        raise ValueError("expanding its recurrence takes too much time")

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SERIES_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
