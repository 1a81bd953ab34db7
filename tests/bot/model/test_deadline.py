"""Deadlines as people type them."""

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.times import InvalidTimeError, format_deadline, parse_deadline

NOON = round(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("18:00", "2026-03-28 18:00 UTC"),
        ("today 18:00", "2026-03-28 18:00 UTC"),
        ("tomorrow 9:30", "2026-03-29 09:30 UTC"),
        ("tomorrow", "2026-03-30 00:00 UTC"),
        ("2026-04-01", "2026-04-02 00:00 UTC"),
        ("2026-04-01 18:00", "2026-04-01 18:00 UTC"),
        ("2026-04-01T18:00", "2026-04-01 18:00 UTC"),
        ("18:00 Europe/Amsterdam", "2026-03-28 17:00 UTC"),
        # The clocks there have changed by then.
        ("tomorrow 18:00 Europe/Amsterdam", "2026-03-29 16:00 UTC"),
        ("18:00+01:00", "2026-03-28 17:00 UTC"),
        ("4 hours", "2026-03-28 16:00 UTC"),
        ("90min", "2026-03-28 13:30 UTC"),
        ("2 w", "2026-04-11 12:00 UTC"),
    ],
)
def test_deadline_is_parsed_in_every_notation(typed: str, meant: str):
    assert format_deadline(parse_deadline(typed, now=NOON)) == meant


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "is not a time"),
        ("whenever", "is not a time"),
        ("25:00", "is not a time"),
        ("2026-02-30", "is not a time"),
        ("Europe/Paris", "is not a time"),
        ("18:00 Europe/Atlantis", "unknown time zone"),
        ("18:00 ../../etc/passwd", "not a time"),
        ("11:59", "2026-03-28 11:59 UTC has passed already"),
        ("12:00", "has passed already"),
        ("0 h", "has passed already"),
    ],
)
def test_invalid_deadline_is_rejected_with_what_to_type(typed: str, message: str):
    with pytest.raises(InvalidTimeError, match=message):
        parse_deadline(typed, now=NOON)


def test_deadline_without_a_zone_uses_the_zone_of_the_person():
    def meant(typed: str) -> str:
        return format_deadline(parse_deadline(typed, now=NOON, zone="Asia/Tokyo"))

    assert meant("23:00") == "2026-03-28 14:00 UTC"
    assert meant("tomorrow") == "2026-03-29 15:00 UTC"
    assert meant("18:00Z") == "2026-03-28 18:00 UTC"


@given(st.text(max_size=30))
def test_deadline_is_in_the_future_or_rejected(typed: str):
    with contextlib.suppress(InvalidTimeError):
        assert parse_deadline(typed, now=NOON) > NOON
