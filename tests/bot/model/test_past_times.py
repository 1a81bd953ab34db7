"""Past times as people type them."""

import pytest

from bot.model import times
from bot.model.times import InvalidTimeError

# 2026-03-01 14:30:05 UTC, a Sunday.
NOW = 1_772_375_405_000_000


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("02:00", "2026-03-01 02:00:00Z"),
        ("14:30", "2026-03-01 14:30:00Z"),
        ("14:31", "2026-02-28 14:31:00Z"),
        ("23:59", "2026-02-28 23:59:00Z"),
        ("today", "2026-03-01 00:00:00Z"),
        ("yesterday 02:00", "2026-02-28 02:00:00Z"),
        ("2026-01-31", "2026-01-31 00:00:00Z"),
        ("2026-01-31 2:05", "2026-01-31 02:05:00Z"),
        ("2026-01-31T02:05Z", "2026-01-31 02:05:00Z"),
        ("2025-07-01 02:00 Europe/Paris", "2025-07-01 00:00:00Z"),
        ("15:00 Europe/Paris", "2026-03-01 14:00:00Z"),
        ("now", "2026-03-01 14:30:05Z"),
        ("2 h", "2026-03-01 12:30:05Z"),
        ("90 minutes ago", "2026-03-01 13:00:05Z"),
        ("an hour ago", "2026-03-01 13:30:05Z"),
        ("A week ago", "2026-02-22 14:30:05Z"),
        ("last 7 days", "2026-02-22 14:30:05Z"),
        ("last week", "2026-02-16 00:00:00Z"),
    ],
)
def test_past_time_is_parsed_in_every_notation(typed: str, meant: str):
    assert times.format_timestamp(times.parse_past_time(typed, now=NOW)) == meant


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("", "is not a time"),
        ("last year", "type 02:00, yesterday 14:30, .*, last week, or 2 hours ago"),
        ("soon", "is not a time"),
        ("25:00", "is not a time"),
        ("2026-02-30", "is not a time"),
        ("2026-03-02 01:00", "is in the future"),
        ("02:00 Nowhere/Land", "unknown time zone"),
        ("02:00 ../../etc/passwd", "is not a time"),
        ("12345 h", "is not a time"),
        ("9999-12-31", "is not a time"),
    ],
)
def test_invalid_past_time_is_rejected(typed: str, why: str):
    with pytest.raises(InvalidTimeError, match=why):
        times.parse_past_time(typed, now=NOW)


def test_past_time_without_a_zone_uses_the_zone_of_the_person():
    def meant(typed: str) -> str:
        return times.format_timestamp(times.parse_past_time(typed, now=NOW, zone="Asia/Tokyo"))

    assert meant("23:00") == "2026-03-01 14:00:00Z"
    # It is 23:30 there: 23:31 was yesterday.
    assert meant("23:31") == "2026-02-28 14:31:00Z"
    assert meant("today") == "2026-02-28 15:00:00Z"
    assert meant("this month") == "2026-02-28 15:00:00Z"
    assert meant("14:00Z") == "2026-03-01 14:00:00Z"
    assert times.format_timestamp(NOW, "Asia/Tokyo") == "2026-03-01 23:30:05"


@pytest.mark.parametrize(
    ("typed", "first", "last"),
    [
        ("2026-02-27", "2026-02-27 00:00:00Z", "2026-02-27 23:59:59Z"),
        ("2026-02-27 08:15", "2026-02-27 08:15:00Z", "2026-02-27 08:15:59Z"),
        ("2026-02-27T08:15:30Z", "2026-02-27 08:15:30Z", "2026-02-27 08:15:30Z"),
        ("2026-02-27 08:15:30 UTC", "2026-02-27 08:15:30Z", "2026-02-27 08:15:30Z"),
        ("today", "2026-03-01 00:00:00Z", "2026-03-01 23:59:59Z"),
        ("Yesterday", "2026-02-28 00:00:00Z", "2026-02-28 23:59:59Z"),
        ("02:00", "2026-03-01 02:00:00Z", "2026-03-01 02:00:59Z"),
        ("2h", "2026-03-01 12:30:05Z", "2026-03-01 12:30:05Z"),
        (" 1  week ", "2026-02-22 14:30:05Z", "2026-02-22 14:30:05Z"),
        ("last week", "2026-02-16 00:00:00Z", "2026-02-22 23:59:59Z"),
        ("this week", "2026-02-23 00:00:00Z", "2026-03-01 23:59:59Z"),
        ("last month", "2026-02-01 00:00:00Z", "2026-02-28 23:59:59Z"),
        ("This  Month", "2026-03-01 00:00:00Z", "2026-03-31 23:59:59Z"),
    ],
)
def test_earliest_and_latest_time_of_a_typed_period_are_computed(
    typed: str, first: str, last: str
):
    assert times.format_timestamp(times.parse_earliest_time(typed, now=NOW)) == first
    assert times.format_timestamp(times.parse_latest_time(typed, now=NOW)) == last


@pytest.mark.parametrize("typed", ["30m", "±30m", "± 30 min", "+-30m", "30 minutes"])
def test_time_span_is_parsed_in_every_notation(typed: str):
    assert times.parse_span(typed) == 1_800_000_000


@pytest.mark.parametrize("typed", ["", "30", "m", "-30m", "30y"])
def test_invalid_time_span_is_rejected(typed: str):
    with pytest.raises(InvalidTimeError):
        times.parse_span(typed)
