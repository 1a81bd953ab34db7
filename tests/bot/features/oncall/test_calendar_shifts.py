"""On-call calendars of PagerDuty, Google and others are expanded to shifts."""

from datetime import UTC, datetime

import pytest

from bot.features.oncall.calendar_shifts import CalendarError, expand_calendar, list_shifts
from bot.features.oncall.shift import Shift

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


def list_problems(lines: str) -> list[tuple[str, str]]:
    """Return the title and problem of each event that is not understood, without its times."""
    shifts = list_shifts(build_calendar(lines), zone="UTC", now=to_microseconds(NOON))
    unclear = [shift for shift in shifts if shift.problem]
    assert all(shift.addresses == () for shift in unclear)
    return [*dict.fromkeys((shift.title, shift.problem) for shift in unclear)]


DANA = "ATTENDEE:mailto:dana@example.com"
DAY = ["DTSTART:20261125T080000Z", "DTEND:20261125T160000Z", "SUMMARY:Day"]
UNDERSTOOD = build_event(*DAY, DANA).replace("UID:1", "UID:2")


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
        (build_calendar("METHOD:COUNTER\n" + build_event("DTSTART:20261125T000000Z")),
         "has METHOD:COUNTER, so its events are not shifts"),
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


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["DTSTART;TZID=Mars/Base:20261125T080000", "DURATION:PT8H"],
         'DTSTART names the time zone "Mars/Base", which is not known'),
        (['DTSTART;TZID="(UTC-05:00) Eastern (US & Canada)":20261125T080000', "DURATION:PT8H"],
         'DTSTART names the time zone "(UTC-05:00) Eastern (US & Canada)", which is not known'),
        (["DTSTART:20261125T080000Z", "DTEND;TZID=Mars/Base:20261125T080000"],
         'DTEND names the time zone "Mars/Base", which is not known'),
        ([*DAY, "RRULE:FREQ=DAILY", "EXDATE;TZID=Mars/Base:20261125T080000"],
         'EXDATE names the time zone "Mars/Base", which is not known'),
        (["DTSTART;TZID=Mars/Base;VALUE=DATE:20261125"],
         'DTSTART names the time zone "Mars/Base", which is not known'),
        (["DTSTART:soon"], "DTSTART is not valid: "),
        (["SUMMARY:Day"], "No DTEND or DURATION+DTSTART given"),
        ([*DAY, "DTSTART:20261125T090000Z"], "Multiple DTSTART defined"),
        ([*DAY, "RRULE:FREQ=DAYLY"], "RRULE is not valid: "),
        ([*DAY, "RRULE:FREQ=DAILY;BYSETPOS=x"], "RRULE is not valid: "),
        ([*DAY, "EXRULE:FREQ=DAILY"], "EXRULE is no longer part of iCalendar: use EXDATE"),
        ([*DAY, "STATUS:CANCELED"], "STATUS:CANCELED is not known"),
        (["DTSTART:20261125T160000Z", "DTEND:20261125T080000Z"], "it ends before it starts"),
        ([*DAY, "nonsense"], "a line is not valid: "),
        (["DTSTART:19700101T000000Z", "DURATION:PT1S", "RRULE:FREQ=SECONDLY"],
         "expanding its recurrence takes too much time"),
    ],
)  # fmt: skip
def test_event_that_is_not_understood_is_named_and_the_others_count(
    lines: list[str], problem: str
) -> None:
    calendar = build_event(*lines, DANA) + UNDERSTOOD
    [(title, found)] = list_problems(calendar)
    assert found.startswith(problem)
    assert title.endswith("(UID 1)")
    assert "11-25 08:00 – 11-25 16:00: dana@example.com" in shifts_of(calendar)


def test_event_of_an_unknown_time_zone_may_be_a_day_earlier_or_later() -> None:
    event = build_event("DTSTART;TZID=Mars/Base:20261125T080000", "DURATION:PT8H", DANA)
    assert shifts_of(event) == ["11-24 08:00 – 11-26 16:00: "]
    # The twin, of long ago, is not named.
    assert list_problems(event.replace("20261125", "20251125")) == []


@pytest.mark.parametrize(
    "tzid",
    ['"Europe/Amsterdam"', "W. Europe Standard Time", '"W. Europe Standard Time"'],
)  # fmt: skip
def test_time_zone_may_be_quoted_or_named_as_windows_does(tzid: str) -> None:
    event = build_event(f"DTSTART;TZID={tzid}:20261125T080000", "DURATION:PT8H", DANA)
    assert shifts_of(event) == ["11-25 07:00 – 11-25 15:00: dana@example.com"]


def test_time_zone_that_the_calendar_defines_is_known() -> None:
    zone = (
        "BEGIN:VTIMEZONE\nTZID:(UTC-05:00) Eastern (US & Canada)\nBEGIN:STANDARD\n"
        "DTSTART:19700101T000000\nTZOFFSETFROM:-0500\nTZOFFSETTO:-0500\nEND:STANDARD\n"
        "END:VTIMEZONE\n"
    )
    start = 'DTSTART;TZID="(UTC-05:00) Eastern (US & Canada)":20261125T080000'
    assert shifts_of(zone + build_event(start, "DURATION:PT8H", DANA)) == [
        "11-25 13:00 – 11-25 21:00: dana@example.com"
    ]


@pytest.mark.parametrize("status", ["CANCELLED", "cancelled", "Cancelled"])
def test_cancelled_event_does_not_count_whatever_its_case(status: str) -> None:
    assert shifts_of(build_event(*DAY, DANA, f"STATUS:{status}")) == []
    assert len(shifts_of(build_event(*DAY, DANA, "STATUS:Confirmed"))) == 1


def test_calendar_that_cancels_its_events_has_no_shifts() -> None:
    assert shifts_of("METHOD:cancel\n" + build_event(*DAY, DANA)) == []
    assert len(shifts_of("METHOD:PUBLISH\n" + build_event(*DAY, DANA))) == 1


@pytest.mark.parametrize(
    ("parameter", "is_on_duty"),
    [
        ("PARTSTAT=ACCEPTED", True), ("PARTSTAT=NEEDS-ACTION", True), ("PARTSTAT=declined", False),
        ("PARTSTAT=DELEGATED", False), ("ROLE=NON-PARTICIPANT", False),
        ("ROLE=non-participant", False), ("ROLE=CHAIR", True), ("CUTYPE=ROOM", False),
        ("CUTYPE=resource", False), ("CUTYPE=GROUP", False), ("CUTYPE=INDIVIDUAL", True),
        ('CN="alex@example.com"', True),
    ],
)  # fmt: skip
def test_attendee_is_on_duty_only_if_a_person_takes_part(
    parameter: str, *, is_on_duty: bool
) -> None:
    event = build_event(*DAY, f"ATTENDEE;{parameter}:mailto:dana@example.com")
    expected = "11-25 08:00 – 11-25 16:00: dana@example.com"
    assert shifts_of(event) == [expected if is_on_duty else expected.removesuffix(DANA[16:])]


def test_attendee_who_only_gets_a_copy_is_not_on_duty() -> None:
    event = build_event(*DAY, "ATTENDEE:mailto:dana@example.com?cc=alex@example.com")
    assert shifts_of(event) == ["11-25 08:00 – 11-25 16:00: dana@example.com"]


def test_summary_with_two_addresses_puts_no_one_on_duty() -> None:
    swap = "dana@example.com instead of alex@example.com"
    event = build_event(*DAY).replace("SUMMARY:Day", f"SUMMARY:{swap}")
    assert list_problems(event) == [
        (swap, "its title names dana@example.com and alex@example.com: invite one of them")
    ]
    assert shifts_of(event) == ["11-25 08:00 – 11-25 16:00: "]
    # The twin names one person twice.
    same = event.replace("alex@", "Dana@")
    assert shifts_of(same) == ["11-25 08:00 – 11-25 16:00: dana@example.com"]


@pytest.mark.parametrize(
    ("duration", "end"),
    [
        # On 25 October 2026 clocks go back at 03:00: the day has 25 hours (RFC 5545, 3.3.6).
        ("PT12H", "10-25 10:00"), ("PT24H", "10-25 22:00"), ("P1D", "10-25 23:00"),
        ("P1W", "10-31 23:00"), ("P1DT12H", "10-26 11:00"),
    ],
)  # fmt: skip
def test_hours_of_a_duration_are_exact_and_days_are_local(duration: str, end: str) -> None:
    event = build_event("DTSTART;TZID=Europe/Berlin:20261025T000000", f"DURATION:{duration}")
    at = datetime(2026, 10, 25, tzinfo=UTC)
    assert shifts_of(event, now=at) == [f"10-24 22:00 – {end}: "]
    weekly = event.replace("20261025", "20261018").replace("END:", "RRULE:FREQ=WEEKLY\nEND:")
    assert f"10-24 22:00 – {end}: " in shifts_of(weekly, now=at)


@pytest.mark.parametrize(
    ("start", "until", "last"),
    [
        ("DTSTART;TZID=America/New_York:20261120T200000", "20261127", "11-28 01:00"),
        ("DTSTART;TZID=America/New_York:20261120T200000", "20261127T200000", "11-28 01:00"),
        ("DTSTART;TZID=America/New_York:20261120T200000", "20261128T010000Z", "11-28 01:00"),
        ("DTSTART;TZID=America/New_York:20261120T200000", "20261128T005959Z", "11-27 01:00"),
        ("DTSTART:20261120T200000Z", "20261127", "11-27 20:00"),
        ("DTSTART:20261120T200000", "20261127", "11-27 20:00"),
        ("DTSTART:20261120T200000", "20261127T195959Z", "11-26 20:00"),
        ("DTSTART;VALUE=DATE:20261120", "20261127", "11-27 00:00"),
    ],
)  # fmt: skip
def test_series_includes_its_last_day_though_until_is_a_date(
    start: str, until: str, last: str
) -> None:
    event = build_event(start, f"RRULE:FREQ=DAILY;UNTIL={until}", "DURATION:P1D")
    assert shifts_of(event)[-1][:11] == last


def test_until_of_a_calendar_with_one_time_zone_is_a_day_of_that_zone() -> None:
    event = build_event(
        "DTSTART:20261120T200000", "DURATION:PT8H", "RRULE:FREQ=DAILY;UNTIL=20261127"
    )
    shifts = shifts_of("X-WR-TIMEZONE:America/New_York\n" + event)
    assert shifts[-1][:11] == "11-28 01:00"


def test_changed_event_whose_recurrence_id_cannot_be_matched_makes_its_series_unclear() -> None:
    series = build_event(*DAY, "RRULE:FREQ=DAILY", DANA)
    changed = build_event(
        "DTSTART:20261126T090000Z", "DTEND:20261126T160000Z", "ATTENDEE:mailto:alex@example.com",
        "RECURRENCE-ID;VALUE=DATE:20261126",
    )  # fmt: skip
    problem = "RECURRENCE-ID and DTSTART must both be dates, or both be times"
    assert list_problems(series + changed) == [("Day (UID 1)", problem)]
    matched = changed.replace(";VALUE=DATE:20261126", ":20261126T080000Z")
    assert shifts_of(series + matched)[1:3] == [
        "11-26 09:00 – 11-26 16:00: alex@example.com",
        "11-27 08:00 – 11-27 16:00: dana@example.com",
    ]
    # EXDATE takes one away, though it is a date.
    without = series.replace("END:V", "EXDATE;VALUE=DATE:20261126\nEND:V", 1)
    assert shifts_of(without)[1] == "11-27 08:00 – 11-27 16:00: dana@example.com"


@pytest.mark.parametrize(
    "lines",
    [
        "BEGIN:VTODO\nDTSTART:soon\nEND:VTODO\n",
        build_event(*DAY, "BEGIN:VALARM\nTRIGGER:soon\nEND:VALARM"),
        "BEGIN:VTIMEZONE\nTZID:Mars\nEND:VTIMEZONE\n",
        "BEGIN:VTIMEZONE\nTZID:Mars\nBEGIN:STANDARD\nDTSTART:soon\nEND:STANDARD\nEND:VTIMEZONE\n",
    ],
)
def test_other_components_do_not_reject_a_calendar(lines: str) -> None:
    local = build_event("DTSTART;TZID=Mars:20261125T080000").replace("UID:1", "UID:3")
    assert "11-25 08:00 – 11-25 16:00: dana@example.com" in shifts_of(lines + UNDERSTOOD)
    assert list_problems(lines + UNDERSTOOD) == []
    [(_, problem)] = list_problems(lines + local)
    assert problem == 'DTSTART names the time zone "Mars", which is not known'
