"""Moments that have passed, as people type them."""

import pytest

from bot import hindsight
from bot.hindsight import NotAMoment

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
        ("2 h", "2026-03-01 12:30:05Z"),
        ("90 minutes ago", "2026-03-01 13:00:05Z"),
    ],
)
def test_a_moment_is_understood(typed: str, meant: str):
    assert hindsight.written(hindsight.moment(typed, now=NOW)) == meant


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("", "is no time"),
        ("soon", "is no time"),
        ("25:00", "is no time"),
        ("2026-02-30", "is no time"),
        ("2026-03-02 01:00", "is still to come"),
        ("02:00 Nowhere/Land", "there is no time zone"),
        ("02:00 ../../etc/passwd", "is no time"),
    ],
)
def test_what_is_no_moment_is_said_to_be_none(typed: str, why: str):
    with pytest.raises(NotAMoment, match=why):
        hindsight.moment(typed, now=NOW)


@pytest.mark.parametrize("typed", ["30m", "±30m", "± 30 min", "+-30m", "30 minutes"])
def test_a_span_is_understood(typed: str):
    assert hindsight.span(typed) == 1_800_000_000


@pytest.mark.parametrize("typed", ["", "30", "m", "-30m", "30y"])
def test_what_is_no_span_is_said_to_be_none(typed: str):
    with pytest.raises(NotAMoment):
        hindsight.span(typed)
