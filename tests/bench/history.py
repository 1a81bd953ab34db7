"""The history: what a page of it takes, filtered each way, and as it grows."""

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tests.bench import pages
from tests.bench.appending import append_each
from tests.bench.keeping import Filled, filled
from tests.bench.measuring import (
    Figure,
    Part,
    at_least,
    at_most,
    columns,
    p95,
    table,
    timed,
    told,
)

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


def measured(name: str, counts: Sequence[int], rounds: int, keep: Path | None) -> Part:
    """Measure a database of each size, the last one most. name: SQLite or PostgreSQL.

    counts: of entries. keep: where they are kept, None for nowhere.
    """
    grown: dict[int, Grown] = {}
    asked: list[Figure] = []
    drawn: list[Figure] = []
    seconds, runs = 0.0, 0
    for count in counts:
        with filled(name, count, keep) as found:
            grown[count] = _grown(found, rounds)
            if count == counts[-1]:
                asked, drawn = _asked(found, rounds), _drawn(found, rounds)
                seconds, runs = found.seconds, found.runs
    growth = _growth(grown, counts[-1])
    said = [
        f"{counts[-1]:,} entries of {runs:,} runs, filled in within {seconds:,.0f} s.\n",
        table([*asked, *drawn, growth], beside="raw driver or table"),
        "\nThe same by the number of entries, at the median:\n",
        _slope(grown),
    ]
    targets = [asked[0], *_worst(asked, drawn), growth]
    return Part("\n".join(said), [figure.of(name) for figure in targets])


def _worst(asked: Sequence[Figure], drawn: Sequence[Figure]) -> list[Figure]:
    """Return what was slowest: of what the database is asked, and of what is drawn of it."""
    judged = [figure for figure in drawn if figure.met is not None]
    worst = [
        max(asked, key=lambda figure: figure.value),
        max((one for one in judged if one.unit == "ms"), key=lambda figure: figure.value),
        min((one for one in judged if one.unit == "/s"), key=lambda figure: figure.value),
    ]
    return [replace(figure, what=f"the slowest: {figure.what}") for figure in worst]


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


def _asked(found: Filled, rounds: int) -> list[Figure]:
    dice = random.Random(7)  # noqa: S311 - the same cases each time
    raw = timed(lambda: pages.ask_raw(found.database, lambda: dice.randint(1, found.runs)), rounds)
    return [
        _milliseconds(f"page of 40 runs: {what}, p95", p95(took), p95(raw))
        for what, took in _taken(found, rounds).items()
    ]


def _drawn(found: Filled, rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    with closing(pages.Pages(found.database)) as site:
        for what, address, is_history in _DRAWN:
            site.timed(address, 1)
            if not is_history:
                took = site.timed(address, rounds // 10)
                figures.append(told(f"{what} drawn, p95", p95(took) * 1000, "ms"))
                continue
            cpu = time.process_time()
            took = site.timed(address, rounds)
            each = rounds / (time.process_time() - cpu)
            cpu = time.process_time()
            timed(pages.draw_bare, rounds)
            bare = rounds / (time.process_time() - cpu)
            figures.append(_milliseconds(f"{what} drawn, p95", p95(took), None))
            figures.append(at_least(_RATE, f"{what} drawn, a core", each, "/s", bare))
    return figures


def _milliseconds(what: str, seconds: float, raw: float | None) -> Figure:
    return at_most(_MOST, what, seconds * 1000, "ms", None if raw is None else raw * 1000)


def _growth(grown: Mapping[int, Grown], count: int) -> Figure:
    """Return how much longer the page of a middling filter takes than with a tenth of that."""
    before, after = grown[count // 10].pages, grown[count].pages
    ratio = median(after[what] / before[what] for what in before)
    what = f"a page at {count:,} entries, by that at {count // 10:,}"
    return at_most(1.2, what, ratio, "×")


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
