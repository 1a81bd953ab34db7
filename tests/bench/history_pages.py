"""The history pages of a large database, with each filter."""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.bench import pages
from tests.bench.filled_database import FilledDatabase, open_filled_database
from tests.bench.measurements import Figure, Part, p95, set_maximum, table, timed

_LIMIT_MS = 15.0
_PAGES = {
    "/runs": "/runs",
    "/runs of a host": "/runs?host=web7",
    "/runs by words of output": "/runs?search=overheated",
    "/runs by value, area and state": "/runs?search=device%3Dsdb&area=web&state=failed",
    "/changelog": "/changelog",
    "/changelog of a host and a kind": "/changelog?host=web7&kind=succeeded",
    "/changelog of hosts": "/changelog?host=web1*",
    "/changelog of an area": "/changelog?area=edge",
}


def measure(name: str, count: int, rounds: int, keep: Path | None) -> Part:
    """Measure the pages of a database with so many entries.

    Args:
        name: SQLite or PostgreSQL.
        keep: where filled databases are kept, None for nowhere.
    """
    with open_filled_database(name, count, keep) as filled:
        queries, drawn = _time_queries(filled, rounds), _time_pages(filled, rounds)
        text = f"{count:,} entries of {filled.runs:,} runs.\n\n"
    text += table([*queries, *drawn], beside="raw driver")
    targets = [queries[0], *(_slowest(figures) for figures in (queries, drawn))]
    return Part(text, [figure.of(name) for figure in targets])


def _slowest(figures: Sequence[Figure]) -> Figure:
    slowest = max(figures, key=lambda figure: figure.value)
    return replace(slowest, what=f"the slowest: {slowest.what}")


def _time_queries(filled: FilledDatabase, rounds: int) -> list[Figure]:
    dice = random.Random(7)  # noqa: S311 - the same cases each time
    raw = timed(
        lambda: pages.ask_raw(filled.database, lambda: dice.randint(1, filled.runs)), rounds
    )
    figures: list[Figure] = []
    for what, choose in pages.filters(filled.runs, filled.began, random.Random(7)).items():  # noqa: S311
        pages.ask(filled.database, choose)
        took = timed(lambda choose=choose: pages.ask(filled.database, choose), rounds)
        figures.append(_milliseconds(f"page of 40 runs: {what}, p95", took, p95(raw) * 1000))
    return figures


def _time_pages(filled: FilledDatabase, rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    with closing(pages.Pages(filled.database)) as site:
        for what, address in _PAGES.items():
            site.timed(address, 1)
            figures.append(_milliseconds(f"{what} as HTML, p95", site.timed(address, rounds)))
    return figures


def _milliseconds(what: str, took: Sequence[float], raw: float | None = None) -> Figure:
    return set_maximum(_LIMIT_MS, what, p95(took) * 1000, "ms", raw)
