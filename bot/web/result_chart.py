"""Chart of the results of runs by day. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from bot.db.stats import DayResult
from bot.model.run import NEEDS_ATTENTION, State

DAYS = 30
# Width of a day and height of the chart, in SVG units.
_STEP, _HEIGHT = 20, 100
_PROBLEMS = frozenset({State.FAILED, State.UNKNOWN, State.STALE})
_SUCCESSES = frozenset({State.SUCCEEDED, State.NO_CHANGES})
# Each result has a pattern too: see `.kt-result-…`. From the bottom of a bar to its top.
RESULTS = ("succeeded", "needs attention", "failed", "other")


@dataclass(frozen=True)
class Bar:
    """A part of the bar of a day, in SVG units."""

    x: int
    y: float
    height: float
    result: str


@dataclass(frozen=True)
class ResultChart:
    """The runs of each day, the oldest first."""

    days: Sequence[tuple[date, Sequence[int]]]
    """Each day with the number of runs of each of RESULTS."""
    highest: int

    @property
    def totals(self) -> Sequence[tuple[str, int]]:
        counts = [counts for _, counts in self.days]
        return [(name, sum(each[n] for each in counts)) for n, name in enumerate(RESULTS)]

    @property
    def description(self) -> str:
        """Return the chart as a sentence."""
        parts = ", ".join(f"{count} {name}" for name, count in self.totals)
        return f"Runs of the last {DAYS} days by result: {parts}"

    @property
    def bars(self) -> Sequence[Bar]:
        bars: list[Bar] = []
        for column, (_, counts) in enumerate(self.days):
            y = float(_HEIGHT)
            for result, count in zip(RESULTS, counts, strict=True):
                height = round(_HEIGHT * count / max(self.highest, 1), 2)
                y = round(y - height, 2)
                if count:
                    name = result.replace(" ", "-")
                    bars.append(Bar(column * _STEP + 2, y, height, name))
        return bars


def build_result_chart(results: Sequence[DayResult], *, now: int) -> ResultChart:
    """Return the chart of the days up to now. now: microseconds since 1970."""
    today = datetime.fromtimestamp(now / 1_000_000, UTC).date()
    days = [today - timedelta(days=ago) for ago in reversed(range(DAYS))]
    counts = {day: [0] * len(RESULTS) for day in days}
    for result in results:
        if result.day in counts:
            counts[result.day][_get_result_index(result.status)] += result.count
    highest = max(sum(each) for each in counts.values())
    return ResultChart([*counts.items()], highest)


def _get_result_index(status: str) -> int:
    if status in _SUCCESSES:
        return 0
    if status == NEEDS_ATTENTION:
        return 1
    return 2 if status in _PROBLEMS else 3
