"""Civil times as people type them, in any time zone, also at clock changes."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.times import (
    InvalidTimeError,
    is_time_zone,
    parse_civil_time,
    to_datetime,
    to_microseconds,
)

# 2026-10-25 12:00 UTC: clocks in Europe went back that night.
NOW = to_microseconds(datetime(2026, 10, 25, 12, tzinfo=UTC))
HERE = "Europe/Amsterdam"


def get_bounds(text: str, zone: str = HERE) -> str:
    """Return the first and the last second of what was typed, in UTC."""
    time = parse_civil_time(text, now=NOW, zone=zone)
    assert time is not None
    bounds = time.compute_bounds(time.day or time.today)
    return " to ".join(f"{to_datetime(one):%Y-%m-%d %H:%M:%S}" for one in bounds)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("14:30", "2026-10-25 13:30:00 to 2026-10-25 13:30:59"),
        ("14:30:05", "2026-10-25 13:30:05 to 2026-10-25 13:30:05"),
        ("2026-07-01 14:30", "2026-07-01 12:30:00 to 2026-07-01 12:30:59"),
        ("2026-07-01T14:30:05.123456Z", "2026-07-01 14:30:05 to 2026-07-01 14:30:05"),
        ("2026-07-01 14:30 Asia/Tokyo", "2026-07-01 05:30:00 to 2026-07-01 05:30:59"),
        ("2026-07-01 14:30+05:30", "2026-07-01 09:00:00 to 2026-07-01 09:00:59"),
        ("2026-07-01 14:30 -0800", "2026-07-01 22:30:00 to 2026-07-01 22:30:59"),
        ("2026-07-01 14:30 -08", "2026-07-01 22:30:00 to 2026-07-01 22:30:59"),
        ("14:30Z", "2026-10-25 14:30:00 to 2026-10-25 14:30:59"),
        ("14:30 utc", "2026-10-25 14:30:00 to 2026-10-25 14:30:59"),
        # A day of 25 hours, and the one before, which ends when it begins.
        ("today", "2026-10-24 22:00:00 to 2026-10-25 22:59:59"),
        ("Yesterday", "2026-10-23 22:00:00 to 2026-10-24 21:59:59"),
        ("2026-03-29", "2026-03-28 23:00:00 to 2026-03-29 21:59:59"),
        ("tomorrow 9:00", "2026-10-26 08:00:00 to 2026-10-26 08:00:59"),
    ],
)
def test_civil_time_is_parsed_in_the_zone_of_the_person(typed: str, meant: str):
    assert get_bounds(typed) == meant


def test_today_depends_on_the_time_zone():
    assert get_bounds("today", "Pacific/Auckland").startswith("2026-10-25 11:00:00 to")


def test_ambiguous_civil_time_is_rejected_with_both_unambiguous_forms():
    with pytest.raises(
        InvalidTimeError, match="02:30 on 2026-10-25 in Europe/Amsterdam occurs twice"
    ) as no:
        get_bounds("02:30")
    first, second = str(no.value).partition("type ")[2].split(" or ")
    assert get_bounds(first).startswith("2026-10-25 00:30:00")
    assert get_bounds(second).startswith("2026-10-25 01:30:00")


def test_skipped_civil_time_is_rejected():
    with pytest.raises(InvalidTimeError, match="02:30 on 2026-03-29 in Europe/Amsterdam"):
        get_bounds("2026-03-29 02:30")
    assert get_bounds("2026-03-29 03:00").startswith("2026-03-29 01:00:00")
    assert get_bounds("2026-03-29 01:59").startswith("2026-03-29 00:59:00")


def test_day_whose_midnight_is_skipped_begins_at_its_first_moment():
    assert get_bounds("2026-03-29", "Asia/Beirut") == "2026-03-28 22:00:00 to 2026-03-29 20:59:59"


@pytest.mark.parametrize(
    "typed", ["", "soon", "25:00", "2026-02-30", "14:60", "14:30 +25:00x", "yesterdayy"]
)
def test_invalid_civil_time_is_none(typed: str):
    assert parse_civil_time(typed, now=NOW) is None


@pytest.mark.parametrize("typed", ["14:30 Europe/Atlantis", "14:30 x../../etc/passwd", "1:00+99"])
def test_unknown_time_zone_is_rejected(typed: str):
    with pytest.raises(InvalidTimeError, match="unknown time zone"):
        parse_civil_time(typed, now=NOW)


def test_time_zone_names_are_recognised():
    assert [is_time_zone(name) for name in (HERE, "Z", "+01:00")] == [True] * 3
    assert [is_time_zone(name) for name in ("", "Mars", "../UTC", "a\x00b")] == [False] * 4


@given(st.dates(date(1980, 1, 1), date(2030, 12, 31)), st.sampled_from((HERE, "America/St_Johns")))
def test_consecutive_days_have_no_gap(day: date, zone: str):
    first = parse_civil_time(day.isoformat(), now=NOW, zone=zone)
    assert first is not None
    assert (
        first.compute_bounds(day)[1] + 1
        == first.compute_bounds(date.fromordinal(day.toordinal() + 1))[0]
    )
