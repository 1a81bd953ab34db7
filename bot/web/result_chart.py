"""Chart of the results of runs by day."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from weakref import WeakKeyDictionary

from bot.db import stats
from bot.db.database import Transaction
from bot.model import times
from bot.model.run import ENDED_STATES, State
from bot.model.run_states import OUTCOMES, PROBLEM_OUTCOMES, Outcome
from bot.model.view_rights import ViewRights

DAYS = 30
# Width of a day and height of the chart, in SVG units.
_STEP, _HEIGHT = 20, 100
# Begin and end in microseconds.
_Period = tuple[int, int]
_OPEN_STATES = frozenset(State) - ENDED_STATES
# Each result has a pattern too: see `.kt-result-…`. From the bottom of a bar to its top.
RESULTS = ("succeeded", "needs attention", "failed or unknown", "other")


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


class ResultCounter:
    """Counts the runs of the last days, those of a past day only until all of them have ended."""

    def __init__(self) -> None:
        self._final: WeakKeyDictionary[ViewRights, Mapping[_Period, Counter[str]]] = (
            WeakKeyDictionary()
        )

    def build_chart(self, tx: Transaction, rights: ViewRights, zone: str) -> ResultChart:
        """Return the chart of what these rights permit to view. zone: of the days."""
        known = self._final.get(rights, {})
        days = times.list_days(tx.now, zone, range(1 - DAYS, 1))
        counts = {
            period: known[period] if period in known else stats.count_results(tx, *period)
            for _, period in days
        }
        self._final[rights] = {
            period: counted
            for period, counted in counts.items()
            if period[1] <= tx.now and _OPEN_STATES.isdisjoint(counted)
        }
        return build_result_chart([(day, counts[period]) for day, period in days])


def build_result_chart(days: Sequence[tuple[date, Mapping[str, int]]]) -> ResultChart:
    """Return the chart of days with their numbers of runs by status."""
    counted: list[tuple[date, Sequence[int]]] = []
    for day, statuses in days:
        counts = [0] * len(RESULTS)
        for status, count in statuses.items():
            counts[_get_result_index(status)] += count
        counted.append((day, counts))
    return ResultChart(counted, max(sum(counts) for _, counts in counted))


def _get_result_index(status: str) -> int:
    outcome = OUTCOMES[status]
    if outcome is Outcome.SUCCEEDED:
        return 0
    if outcome is Outcome.NEEDS_ATTENTION:
        return 1
    return 2 if outcome in PROBLEM_OUTCOMES else 3
