"""Schedules fire once at each moment of the calendar, in twelve zones, while the clock jumps.

`make chaos` simulates the days around each change of clocks in ten years, `make test` one day.
"""

import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest

from bot.model.run import State
from bot.model.schedule import FireOutcome
from tests.bot.model.test_schedule import ZONES
from tests.campaigns import CHAOS
from tests.chaos.jumping_clock import CLOCK_VARIABLE, list_moments
from tests.chaos.report import NAME, Record
from tests.playground.daemon import find_program

SEED = int(os.environ.get("KEYTURN_SEED", "0")) or secrets.randbelow(10**6)
# The first day, and how many: around the days on which clocks are changed.
_YEARS = range(2026, 2036) if CHAOS else ()
SPANS = [(f"{year}-{month}-25", 14) for year in _YEARS for month in ("03", "09", "10")]
_SECOND = 1_000_000


def _simulate(
    directory: Path, begin: str, days: int
) -> dict[str, list[tuple[int, str, str | None]]]:
    """Simulate the days in another process; return its decision for each moment, by zone."""
    faketime = find_program("/usr/bin/faketime", package="faketime")
    [library] = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    assert faketime
    clock = directory / "clock"
    clock.write_text(f"{date.fromisoformat(begin) - timedelta(days=2)} 00:00:00\n")
    environment = {
        "LD_PRELOAD": str(library),
        CLOCK_VARIABLE: str(clock),
        "FAKETIME_NO_CACHE": "1",
        # Monotonic clocks do not jump.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "TZ": "UTC",
    }
    words = (
        "-m",
        "tests.chaos.jumping_clock",
        str(directory),
        str(SEED),
        begin,
        str(days),
        *ZONES,
    )
    ended = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"seed {SEED}: {ended.stderr[-4000:]}"
    fires: dict[str, list[tuple[int, str, str | None]]] = json.loads(ended.stdout)
    return fires


@pytest.mark.real
@pytest.mark.timeout(0 if CHAOS else 120)
@pytest.mark.parametrize(("begin", "days"), SPANS or [("2026-03-29", 1)])
def test_schedules_fire_by_the_calendar_and_once_when_the_clock_jumps(
    tmp_path: Path, begin: str, days: int, record_property: Record
):
    by_zone = _simulate(tmp_path, begin, days)
    first, outcomes = date.fromisoformat(begin), Counter[str]()
    for zone, all_fires in by_zone.items():
        expected = [round(moment * _SECOND) for moment in list_moments(zone, first, days)]
        fires = [fire for fire in all_fires if fire[0] >= expected[0]]
        due_moments = [due for due, _, _ in fires]
        # A jump ahead may reach moments after the last day.
        assert due_moments[: len(expected)] == expected, f"{zone}, seed {SEED}"
        assert len(due_moments) == len(set(due_moments))
        outcomes.update(outcome for _, outcome, _ in fires)
        states = {state for _, outcome, state in fires if outcome == FireOutcome.FIRED}
        assert states <= {State.SUCCEEDED, State.NO_CHANGES}, f"{zone}, seed {SEED}: {states}"
    # Some moments were missed because the clock had jumped past them.
    assert outcomes[FireOutcome.FIRED]
    assert outcomes[FireOutcome.MISSED]
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    record_property(
        NAME, f"clock jumps of an hour from {begin}, {days} days in {len(ZONES)} zones: {summary}"
    )
