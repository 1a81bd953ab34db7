"""The history pages of a large database, with each filter."""

import random
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bot.db import outbox
from tests.bench import pages
from tests.bench.filled_database import FilledDatabase, open_filled_database
from tests.bench.measurements import Figure, Part, p95, set_maximum, table, timed

_RUNS_PAGES = {
    "": "",
    " of a host": "?host=web7",
    " by words of output": "?search=overheated",
    " by value, area and state": "?search=device%3Dsdb&area=web&state=failed",
}
_LOG_PAGES = {
    "": "",
    " of a host and a kind": "?host=web7&kind=succeeded",
    " of hosts": "?host=web1*",
    " of an area": "?area=edge",
}


def measure(name: str, count: int, rounds: int, keep: Path | None) -> Part:
    """Measure the pages of a database with so many entries.

    Args:
        name: SQLite or PostgreSQL.
        keep: where filled databases are kept, None for nowhere.
    """
    with open_filled_database(name, count, keep) as filled:
        queries = _time_queries(filled, rounds)
        poll = _time_poll(filled, rounds)
        of_runs, of_log = _time_pages(filled, rounds)
        text = f"{count:,} entries of {filled.runs:,} runs.\n\n"
    text += table([*queries, *of_runs, *of_log, poll], beside="raw driver")
    targets = [queries[0], *(_slowest(figures) for figures in (queries, of_runs, of_log)), poll]
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
        ours, theirs = p95(took) * 1000, p95(raw) * 1000
        figures.append(set_maximum(15, f"page of 40 runs: {what}, p95", ours, "ms", theirs))
    return figures


def _time_poll(filled: FilledDatabase, rounds: int) -> Figure:
    """Return how long a look for messages to be sent takes where none waits."""

    def look() -> None:
        with filled.database.reading() as tx:
            assert outbox.list_pending_updates(tx, most=1) == []

    look()
    before = time.process_time()
    timed(look, rounds)
    milliseconds = (time.process_time() - before) / rounds * 1000
    return set_maximum(
        1, "a look for messages to send, where none waits, of the processor", milliseconds, "ms"
    )


def _time_pages(filled: FilledDatabase, rounds: int) -> tuple[list[Figure], list[Figure]]:
    """Return the figures of pages of runs, and those of pages of the change log."""
    with closing(pages.Pages(filled.database)) as site:

        def take(address: str) -> float:
            site.timed(address, 1)
            return p95(site.timed(address, rounds)) * 1000

        return [
            set_maximum(15, f"/runs{what} as HTML, p95", take(f"/runs{query}"), "ms")
            for what, query in _RUNS_PAGES.items()
        ], [
            set_maximum(10, f"/changelog{what} as HTML, p95", take(f"/changelog{query}"), "ms")
            for what, query in _LOG_PAGES.items()
        ]
