"""Times and durations as they are formatted."""

from datetime import UTC, datetime

import pytest
from pydantic import TypeAdapter

from bot.api import schemas
from bot.model import times

SECOND = 1_000_000


def parse_time(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


NOW = parse_time("2026-03-01 14:30:05")


def test_times_are_formatted_in_utc() -> None:
    assert times.format_utc(NOW) == "2026-03-01 14:30:05 UTC"


@pytest.mark.parametrize("after", [0, 1, 120_000, 999_999, -1])
def test_iso_times_of_the_command_line_match_those_of_the_api(after: int) -> None:
    formatted = TypeAdapter(datetime).dump_python(schemas.to_datetime(NOW + after), mode="json")
    assert times.format_iso(NOW + after) == formatted


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 ms"),
        (0, "0 ms"),
        (0.04, "40 ms"),
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
def test_time_spans_are_formatted_in_two_units_at_most(seconds: float, words: str) -> None:
    assert times.format_span(round(seconds * SECOND)) == words
