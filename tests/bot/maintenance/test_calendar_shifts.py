"""On-call calendars of PagerDuty, Google and others are expanded to shifts."""

from datetime import UTC, datetime

import pytest

from bot.maintenance.calendar_shifts import CalendarError, expand_calendar, list_shifts
from bot.model.shift import Shift

# As https://support.pagerduty.com/main/docs/schedules-in-apps exports it: the attendee is a bare
# address, and times are in UTC.
PAGERDUTY = """\
PRODID;X-RICAL-TZSOURCE=TZINFO:-//com.denhaven2/NONSGML ri_cal gem//EN
CALSCALE:GREGORIAN
VERSION:2.0
X-WR-CALNAME:On Call Schedule for Edge
BEGIN:VEVENT
DTEND;VALUE=DATE-TIME:20261201T080000Z
DTSTART;VALUE=DATE-TIME:20261124T080000Z
ATTENDEE:Alex@Example.com
UID:Q1S46N8B8ADP9D
URL:https://example.pagerduty.com/schedules#PFWMMZA
SUMMARY:On Call - Alex Example - Edge
END:VEVENT
"""
# As the secret address of a Google calendar returns it: an edited shift of a series, a time zone
# of its own, and a group calendar as the organiser.
GOOGLE = """\
PRODID:-//Google Inc//Google Calendar 70.9054//EN
VERSION:2.0
CALSCALE:GREGORIAN
METHOD:PUBLISH
X-WR-CALNAME:Edge on call
X-WR-TIMEZONE:Europe/Amsterdam
BEGIN:VTIMEZONE
TZID:Europe/Amsterdam
X-LIC-LOCATION:Europe/Amsterdam
BEGIN:DAYLIGHT
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
TZNAME:CEST
DTSTART:19700329T020000
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU
END:DAYLIGHT
BEGIN:STANDARD
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
TZNAME:CET
DTSTART:19701025T030000
RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
DTSTART;TZID=Europe/Amsterdam:20261101T180000
DTEND;TZID=Europe/Amsterdam:20261102T080000
RRULE:FREQ=DAILY;UNTIL=20261130T225959Z
EXDATE;TZID=Europe/Amsterdam:20261127T180000
DTSTAMP:20261101T120000Z
ORGANIZER;CN=Edge on call:mailto:abc123@group.calendar.google.com
UID:0i0af8p6p8vfampe3r1vkog0jg@google.com
ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=ACCEPTED;CN=Dana E
 xample;X-NUM-GUESTS=0:mailto:dana@example.com
ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=DECLINED;CN=Bob:mailto:bob@example.com
STATUS:CONFIRMED
SUMMARY:Night
TRANSP:OPAQUE
END:VEVENT
BEGIN:VEVENT
DTSTART;TZID=Europe/Amsterdam:20261126T200000
DTEND;TZID=Europe/Amsterdam:20261127T080000
RECURRENCE-ID;TZID=Europe/Amsterdam:20261126T180000
DTSTAMP:20261101T120000Z
UID:0i0af8p6p8vfampe3r1vkog0jg@google.com
ATTENDEE;PARTSTAT=ACCEPTED:mailto:alex@example.com
STATUS:CONFIRMED
SUMMARY:Night\\, swapped
END:VEVENT
BEGIN:VEVENT
DTSTART;TZID=Europe/Amsterdam:20261128T180000
DTEND;TZID=Europe/Amsterdam:20261129T080000
RECURRENCE-ID;TZID=Europe/Amsterdam:20261128T180000
DTSTAMP:20261101T120000Z
UID:0i0af8p6p8vfampe3r1vkog0jg@google.com
STATUS:CANCELLED
SUMMARY:Night
END:VEVENT
"""
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


def to_microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


def build_calendar(lines: str) -> bytes:
    return f"BEGIN:VCALENDAR\n{lines}END:VCALENDAR\n".replace("\n", "\r\n").encode()


def build_event(*lines: str) -> str:
    return "\n".join(["BEGIN:VEVENT", "UID:1", *lines, "END:VEVENT", ""])


def shifts_of(lines: str, *, now: datetime = NOON, zone: str = "UTC") -> list[str]:
    """Return each shift as `2026-11-24 08:00 – 2026-12-01 08:00: addresses`."""
    shifts = list_shifts(build_calendar(lines), zone=zone, now=to_microseconds(now))
    return [describe_shift(shift) for shift in shifts]


def describe_shift(shift: Shift) -> str:
    start, end = (
        datetime.fromtimestamp(at / 1_000_000, UTC) for at in (shift.starts_at, shift.ends_at)
    )
    return f"{start:%m-%d %H:%M} – {end:%m-%d %H:%M}: {' '.join(shift.addresses)}"


def test_pagerduty_shift_names_its_attendee() -> None:
    assert shifts_of(PAGERDUTY) == ["11-24 08:00 – 12-01 08:00: alex@example.com"]


def test_google_calendar_series_is_expanded_with_its_exceptions() -> None:
    shifts = shifts_of(GOOGLE)
    assert shifts[:3] == [
        "11-24 17:00 – 11-25 07:00: dana@example.com",
        "11-25 17:00 – 11-26 07:00: dana@example.com",
        "11-26 19:00 – 11-27 07:00: alex@example.com",
    ]
    # The 27th is an exception, the 28th is cancelled, and the series ends on the 30th.
    assert [one[:5] for one in shifts[3:]] == ["11-29", "11-30"]


def test_shift_without_attendees_uses_the_address_in_its_summary() -> None:
    by_summary = build_event(
        "DTSTART:20261125T080000Z", "DTEND:20261125T160000Z", "SUMMARY:Edge (dana@example.com)"
    )
    assert shifts_of(by_summary) == ["11-25 08:00 – 11-25 16:00: dana@example.com"]
    organised = by_summary.replace("SUMMARY", "ORGANIZER:MAILTO:boss@example.com\nSUMMARY")
    assert shifts_of(organised) == ["11-25 08:00 – 11-25 16:00: dana@example.com"]
    alone = organised.replace("(dana@example.com)", "shift")
    assert shifts_of(alone) == ["11-25 08:00 – 11-25 16:00: boss@example.com"]


def test_shift_whose_attendee_declined_has_no_person_on_duty() -> None:
    declined = build_event(
        "DTSTART:20261125T080000Z",
        "DTEND:20261125T160000Z",
        "ATTENDEE;PARTSTAT=DECLINED:mailto:dana@example.com",
        "ORGANIZER:mailto:boss@example.com",
        "SUMMARY:alex@example.com",
    )
    assert shifts_of(declined) == ["11-25 08:00 – 11-25 16:00: "]


@pytest.mark.parametrize(
    ("lines", "zone", "shift"),
    [
        (["DTSTART;VALUE=DATE:20261125"], "Asia/Tokyo", "11-24 15:00 – 11-25 15:00: "),
        (["DTSTART;VALUE=DATE:20261125", "DTEND;VALUE=DATE:20261127"], "America/New_York",
         "11-25 05:00 – 11-27 05:00: "),
        (["DTSTART:20261125T090000", "DURATION:PT8H"], "Europe/Amsterdam",
         "11-25 08:00 – 11-25 16:00: "),
    ],
)  # fmt: skip
def test_shift_without_a_time_zone_uses_that_of_the_calendar(
    lines: list[str], zone: str, shift: str
) -> None:
    assert shifts_of(build_event(*lines), zone=zone) == [shift]


def test_a_weekly_shift_keeps_its_hour_when_clocks_change() -> None:
    weekly = build_event(
        "DTSTART;TZID=Europe/Amsterdam:20261018T020000",
        "DTEND;TZID=Europe/Amsterdam:20261018T040000",
        "RRULE:FREQ=WEEKLY",
    )
    # On 25 October 2026 clocks go back at 03:00: the shift has three hours.
    shifts = shifts_of(weekly, now=datetime(2026, 10, 19, tzinfo=UTC))
    assert shifts == ["10-18 00:00 – 10-18 02:00: ", "10-25 00:00 – 10-25 03:00: "]
    # On 28 March 2027 clocks go forward at 02:00: it has one hour, from 03:00.
    assert shifts_of(weekly, now=datetime(2027, 3, 27, tzinfo=UTC))[0] == (
        "03-28 01:00 – 03-28 02:00: "
    )


def test_shifts_of_the_last_day_and_the_next_eight_days_are_kept() -> None:
    daily = build_event("DTSTART:20200101T000000Z", "DTEND:20200101T120000Z", "RRULE:FREQ=DAILY")
    shifts = shifts_of(daily)
    assert (shifts[0][:5], shifts[-1][:5], len(shifts)) == ("11-25", "12-03", 9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"<html>Sign in</html>", "is not a valid calendar: Content line could not be parsed"),
        (b"", "is not a valid calendar: Found no components"),
        (build_calendar(build_event("DTSTART:soon")), "is not a valid calendar"),
        # It recurs each second since 1970, and would take hours.
        (build_calendar(build_event("DTSTART:19700101T000000Z", "DURATION:PT1S",
                                    "RRULE:FREQ=SECONDLY")),
         "expanding its events takes too much time or memory"),
    ],
)  # fmt: skip
def test_a_calendar_that_is_not_valid_or_takes_too_long_is_an_error(
    text: bytes, says: str
) -> None:
    with pytest.raises(CalendarError, match=says):
        expand_calendar(text, zone="UTC", now=to_microseconds(NOON), cpu_seconds=1)


def test_a_calendar_with_too_many_shifts_is_an_error() -> None:
    often = build_event(
        "DTSTART:20261125T000000Z", "DURATION:PT1M", "RRULE:FREQ=MINUTELY;INTERVAL=5"
    )
    with pytest.raises(ValueError, match="has more than 2000 events in 8 days"):
        shifts_of(often)


def test_calendar_expanded_in_a_child_process_has_the_same_shifts() -> None:
    text, now = build_calendar(GOOGLE), to_microseconds(NOON)
    assert [*expand_calendar(text, zone="UTC", now=now)] == [
        *list_shifts(text, zone="UTC", now=now)
    ]
