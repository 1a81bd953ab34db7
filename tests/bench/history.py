"""The history: what a page of it takes, filtered each way, and as it grows."""

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench import pages
from tests.bench.appending import append_each
from tests.bench.keeping import Filled, filled
from tests.bench.measuring import Figure, columns, p95, table, timed

_MOST = 15.0
_RATE = 400
# What is drawn besides the history itself takes what it takes, and is told.
_DRAWN = (
    ("/runs", "/runs", True),
    ("/runs of a host", "/runs?host=web7", True),
    ("/runs by words of output", "/runs?text=overheated", True),
    ("/runs by value, area and state", "/runs?text=device%3Dsdb&area=web&state=failed", True),
    ("/log", "/log", True),
    ("/log of a host and a kind", "/log?host=web7&kind=succeeded", True),
    ("/log of hosts", "/log?host=web1*", True),
    ("/log of an area", "/log?area=edge", True),
    ("/around, an hour", "/around?within=1h", False),
    ("/schedules", "/schedules", False),
    ("/report, a quarter", "/report", False),
)


@dataclass(frozen=True)
class Grown:
    """Medians by the kind of filter, in seconds, and entries appended a second, each durable."""

    pages: Mapping[str, float]
    appended: float

    @property
    def middling(self) -> float:
        return median(self.pages.values())


def told(name: str, counts: Sequence[int], rounds: int, keep: Path | None) -> str:
    """Measure a database of each size, the last one most; return Markdown. name: SQLite or
    PostgreSQL. counts: of entries. keep: where they are kept, None for nowhere."""
    grown: dict[int, Grown] = {}
    figures: list[Figure] = []
    seconds, runs = 0.0, 0
    for count in counts:
        with filled(name, count, keep) as found:
            grown[count] = _grown(found, rounds)
            if count == counts[-1]:
                figures = _figures(found, rounds)
                seconds, runs = found.seconds, found.runs
    figures.append(_growth(grown, counts[-1]))
    said = [
        f"{counts[-1]:,} entries of {runs:,} runs, filled in within {seconds:,.0f} s.\n",
        table(figures),
        "\nThe same by the number of entries, at the median:\n",
        _slope(grown),
    ]
    return "\n".join(said)


def _grown(found: Filled, rounds: int) -> Grown:
    medians: dict[str, float] = {}
    for what, took in _taken(found, rounds).items():
        medians[what] = median(took)
    rates: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        rates.append(append_each(found.database) / (time.perf_counter() - began))
    return Grown(medians, median(rates))


def _taken(found: Filled, rounds: int) -> dict[str, list[float]]:
    """Return how long each page of each kind of filter took."""
    dice = random.Random(7)  # noqa: S311 - the same cases each time
    taken: dict[str, list[float]] = {}
    for what, choose in pages.filters(found.runs, found.began, dice).items():
        pages.ask(found.database, choose)
        taken[what] = timed(lambda choose=choose: pages.ask(found.database, choose), rounds)
    return taken


def _figures(found: Filled, rounds: int) -> list[Figure]:
    dice = random.Random(7)  # noqa: S311 - the same cases each time
    raw = timed(lambda: pages.ask_raw(found.database, lambda: dice.randint(1, found.runs)), rounds)
    figures = [
        _milliseconds(f"page of 40 runs: {what}, p95", p95(took), p95(raw))
        for what, took in _taken(found, rounds).items()
    ]
    return [*figures, *_drawn(found, rounds)]


def _drawn(found: Filled, rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    with closing(pages.Pages(found.database)) as site:
        for what, address, is_history in _DRAWN:
            site.get(address)
            if not is_history:
                took = timed(lambda address=address: site.get(address), rounds // 10)
                figures.append(_told(f"{what} drawn, p95", p95(took)))
                continue
            cpu = time.process_time()
            took = timed(lambda address=address: site.get(address), rounds)
            each = rounds / (time.process_time() - cpu)
            figures.append(_milliseconds(f"{what} drawn, p95", p95(took), None))
            name, met = f"{what} drawn, a core", each >= _RATE
            figures.append(Figure(name, each, "/s", None, f"≥ {_RATE} /s", met))
    return figures


def _milliseconds(what: str, seconds: float, raw: float | None) -> Figure:
    taken = None if raw is None else raw * 1000
    met = seconds * 1000 <= _MOST
    return Figure(what, seconds * 1000, "ms", taken, f"≤ {_MOST:g} ms", met)


def _told(what: str, seconds: float) -> Figure:
    return Figure(what, seconds * 1000, "ms", None, "is told", True)


def _growth(grown: Mapping[int, Grown], count: int) -> Figure:
    """Return how much longer the page of a middling filter takes than with a tenth of that."""
    before, after = grown[count // 10].pages, grown[count].pages
    ratio = median(after[what] / before[what] for what in before)
    what = f"a page at {count:,} entries, by that at {count // 10:,}"
    return Figure(what, ratio, "×", None, "≤ 1.2 ×", ratio <= 1.2)


def _slope(grown: Mapping[int, Grown]) -> str:
    rows = [
        [
            f"{count:,}",
            f"{one.pages['newest'] * 1000:.2f} ms",
            f"{one.middling * 1000:.2f} ms",
            f"{max(one.pages.values()) * 1000:.2f} ms",
            f"{one.appended:,.0f} /s",
        ]
        for count, one in grown.items()
    ]
    head = [
        "entries",
        "the newest page",
        "a middling filter",
        "the slowest",
        "append, each durable",
    ]
    return columns([head, *rows])
