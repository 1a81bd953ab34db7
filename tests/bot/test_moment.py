"""Times and spans as people read and type them."""

from datetime import UTC, datetime

import pytest

from bot import moment

SECOND = 1_000_000


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


NOW = at("2026-03-01 14:30:05")


def test_times_are_written_in_utc() -> None:
    assert moment.iso(NOW) == "2026-03-01T14:30:05Z"
    assert moment.utc(NOW) == "2026-03-01 14:30:05 UTC"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0.0 s"),
        (0, "0.0 s"),
        (0.34, "0.3 s"),
        (9.94, "9.9 s"),
        (12, "12 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (250, "4 min 10 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86400, "1 d"),
        (100_000, "1 d 3 h"),
    ],
)
def test_spans_are_told_in_two_units_at_most(seconds: float, words: str) -> None:
    assert moment.span(round(seconds * SECOND)) == words


@pytest.mark.parametrize(
    ("typed", "first", "last"),
    [
        ("2026-02-27", "2026-02-27 00:00:00", "2026-02-27 23:59:59"),
        ("2026-02-27 08:15", "2026-02-27 08:15:00", "2026-02-27 08:15:59"),
        ("2026-02-27T08:15", "2026-02-27 08:15:00", "2026-02-27 08:15:59"),
        ("2026-02-27 08:15:30", "2026-02-27 08:15:30", "2026-02-27 08:15:30"),
        ("2026-02-27T08:15:30Z", "2026-02-27 08:15:30", "2026-02-27 08:15:30"),
        ("2026-02-27 08:15:30 UTC", "2026-02-27 08:15:30", "2026-02-27 08:15:30"),
        ("today", "2026-03-01 00:00:00", "2026-03-01 23:59:59"),
        ("Yesterday", "2026-02-28 00:00:00", "2026-02-28 23:59:59"),
        ("2h", "2026-03-01 12:30:05", "2026-03-01 12:30:05"),
        ("2 hours ago", "2026-03-01 12:30:05", "2026-03-01 12:30:05"),
        ("90 min", "2026-03-01 13:00:05", "2026-03-01 13:00:05"),
        (" 1  week ", "2026-02-22 14:30:05", "2026-02-22 14:30:05"),
        ("3 d", "2026-02-26 14:30:05", "2026-02-26 14:30:05"),
    ],
)
def test_what_people_type_is_understood(typed: str, first: str, last: str) -> None:
    assert moment.earliest(typed, now=NOW) == at(first)
    assert moment.latest(typed, now=NOW) // SECOND * SECOND == at(last)


@pytest.mark.parametrize(
    "typed",
    ["soon", "", "2026-02-30", "2026-02-27 25:00", "12345 h", "5", "-2 h", "٢ h", "1 month"],
)
def test_what_is_no_time_is_answered_with_what_can_be_typed(typed: str) -> None:
    with pytest.raises(moment.NotAMoment, match="2026-03-01 14:30"):
        moment.earliest(typed, now=NOW)
