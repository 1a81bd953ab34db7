"""Due times of schedules in civil time, once for each time, and described in words."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.schedule import (
    NotifyWhen,
    Overlap,
    ScheduleError,
    ScheduleTiming,
    parse_cron,
    parse_timing,
)

SECOND = 1_000_000
ZONES = [
    "Europe/Amsterdam",
    "Europe/London",
    "America/New_York",
    "America/St_Johns",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "UTC",
]


def to_microseconds(at: datetime) -> int:
    return round(at.timestamp()) * SECOND


def first_at(day: date, hour: int, minute: int, zone: ZoneInfo) -> datetime:
    """Say by the calendar alone when a job of that day is due: the oracle.

    Of a time that comes twice, the first; for one that does not come, the end of the gap.
    """
    wanted = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    there_and_back = wanted.astimezone(UTC).astimezone(zone)
    if there_and_back.replace(tzinfo=None) == wanted.replace(tzinfo=None):
        return wanted
    before = wanted.replace(fold=1).utcoffset()
    after = wanted.replace(fold=0).utcoffset()
    assert before is not None
    assert after is not None
    moment = (wanted - timedelta(hours=3)).astimezone(UTC)
    while moment.astimezone(zone).replace(tzinfo=None) < wanted.replace(tzinfo=None):
        moment += timedelta(minutes=1)
    return moment.astimezone(zone)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("clock", [(2, 30), (0, 15), (3, 0), (2, 45)])
def test_daily_schedule_fires_once_a_day_in_every_zone(zone: str, clock: tuple[int, int]):
    hour, minute = clock
    place = ZoneInfo(zone)
    # Of the two years, one is a leap year.
    start = datetime(2027, 1, 1, tzinfo=place)
    days = [start.date() + timedelta(days=n) for n in range(2 * 366)]
    expected = [to_microseconds(first_at(day, hour, minute, place)) for day in days]
    due_times = parse_cron(f"{minute} {hour} * * *", zone).list_due_times(
        to_microseconds(start) - SECOND, count=len(days)
    )
    assert due_times == expected


def test_schedule_fires_once_at_an_ambiguous_and_after_a_skipped_time():
    nightly = parse_cron("30 2 * * *", "Europe/Berlin")
    autumn = to_microseconds(datetime(2027, 10, 31, 0, 0, tzinfo=ZoneInfo("Europe/Berlin")))
    assert nightly.format_due_times(autumn, count=2) == [
        "Sun 31 Oct 2027 02:30 CEST",
        "Mon 1 Nov 2027 02:30 CET",
    ]
    spring = to_microseconds(datetime(2027, 3, 28, 0, 0, tzinfo=ZoneInfo("Europe/Berlin")))
    assert nightly.format_due_times(spring, count=2) == [
        "Sun 28 Mar 2027 03:00 CEST",
        "Mon 29 Mar 2027 02:30 CEST",
    ]


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["*/10 * * * *", "0 * * * *", "15 3 * * *", "0 0 1 * *", "30 2 * * SUN"]),
    st.integers(min_value=1_700_000_000, max_value=2_000_000_000),
    st.integers(min_value=0, max_value=200_000),
)
def test_due_times_do_not_depend_on_where_iteration_starts(
    zone: str, cron: str, instant: int, later: int
):
    """Replicas look at different times: none may see a moment that another does not."""
    table = parse_cron(cron, zone)
    early, late = instant * SECOND, (instant + later) * SECOND
    horizon = table.list_due_times(late, count=3)[-1]
    seen: list[int] = []
    for due in table.iterate_due_times(early):
        if due > horizon:
            break
        seen.append(due)
    assert [due for due in seen if due > late] == table.list_due_times(late, count=3)
    assert seen == sorted(set(seen))


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 3 1 * *", "At 03:00 on the first day of every month (Europe/Amsterdam)"),
        ("@daily", "At 00:00 every day (Europe/Amsterdam)"),
        ("30 2 * * mon-fri", "At 02:30 on Monday through Friday (Europe/Amsterdam)"),
        ("0 9 * * MON#1", "At 09:00 on the first Monday of the month (Europe/Amsterdam)"),
    ],
)
def test_cron_expression_is_described_in_words(cron: str, words: str):
    assert parse_cron(cron, "Europe/Amsterdam").description == words


@pytest.mark.parametrize(
    ("cron", "zone", "why"),
    [
        ("* * * * * *", "UTC", "6 fields instead of five"),
        ("", "UTC", "0 fields instead of five"),
        ("61 * * * *", "UTC", "the minute is not valid"),
        ("0 0 30 2 *", "UTC", "day-of-month"),
        ("0 3 * * 8", "UTC", "day-of-week"),
        ("0 3 * * *", "Mars/Base", "unknown time zone 'Mars/Base'"),
        ("0 3 * * *", "../../etc/passwd", "unknown time zone"),
        ("@reboot", "UTC", "1 field instead of five"),
    ],
)
def test_invalid_cron_expression_is_rejected_with_the_reason(cron: str, zone: str, why: str):
    with pytest.raises(ScheduleError, match=why):
        parse_cron(cron, zone)


def test_typed_schedule_options_are_parsed():
    typed = {
        "cron": "0 3 1 * *",
        "zone": "Europe/Amsterdam",
        "overlap": "queue",
        "catch-up": "once",
        "spread": "30",
        "notify": "always",
    }
    timing = parse_timing(" monthly scrub ", typed, zone="UTC")
    assert timing == ScheduleTiming(
        "monthly scrub",
        parse_cron("0 3 1 * *", "Europe/Amsterdam"),
        Overlap.QUEUE,
        1,
        30,
        NotifyWhen.ALWAYS,
    )
    assert ScheduleTiming.from_json(timing.to_json()) == timing


@pytest.mark.parametrize(
    "typed",
    [
        {},
        {"cron": "@daily", "overlap": "perhaps"},
        {"cron": "@daily", "catch-up": "-1"},
        {"cron": "@daily", "catch-up": "99999"},
        {"cron": "@daily", "catch-up": "٣"},
        {"cron": "@daily", "spread": "1441"},
        {"cron": "@daily", "notify": "never"},
        {"cron": "@daily", "colour": "red"},
    ],
)
def test_invalid_schedule_options_are_rejected(typed: dict[str, str]):
    with pytest.raises(ScheduleError):
        parse_timing("nightly", typed, zone="UTC")


@pytest.mark.parametrize("name", ["", "  ", "x" * 61, "a\nb", "a\u202eb"])
def test_schedule_name_must_be_short_and_visible(name: str):
    with pytest.raises(ScheduleError, match="name"):
        parse_timing(name, {"cron": "@daily"}, zone="UTC")


def test_shortest_gap_of_a_schedule_includes_clock_changes():
    assert parse_cron("0 * * * *", "UTC").compute_shortest_gap(0) == timedelta(hours=1)
    assert parse_cron("*/7 * * * *", "UTC").compute_shortest_gap(0) == timedelta(minutes=4)
    day = parse_cron("0 4 * * *", "Europe/Berlin")
    assert day.compute_shortest_gap(
        to_microseconds(datetime(2026, 1, 1, tzinfo=UTC))
    ) == timedelta(hours=23)
