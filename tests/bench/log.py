"""The change log and the history: what a page, an entry and a proof take, beside the driver."""

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bot.store import changelog, schema, verification
from bot.store.database import Database
from bot.store.export import exported
from bot.store.seal import Seal
from tests.bench import filling, pages
from tests.bench.appending import append_batches, append_each, raw_batches, raw_each
from tests.bench.measuring import Figure, p95, rates, timed
from tests.playground.postgres import Postgres

_VERIFIER = Path(__file__).parents[2] / "docs" / "verify_changelog.py"


@dataclass(frozen=True)
class Measured:
    """What was measured on one database. seconds: that it took to fill it."""

    name: str
    count: int
    seconds: float
    figures: Sequence[Figure]


def figures_of(name: str, *, count: int, rounds: int, place: Path) -> Measured:
    """Fill a database, measure it, and how much longer a page takes than with a tenth of that.

    name: SQLite or PostgreSQL. rounds: of each page. place: a directory with room for it all.
    """
    fewer = place / "fewer"
    fewer.mkdir()
    with filled(name, count // 10, fewer) as (database, _):
        before = _medians(database, count // 10, rounds)
    more = place / "more"
    more.mkdir()
    with filled(name, count, more) as (database, seconds):
        after = _medians(database, count, rounds)
        figures = _figures(database, count, more, rounds)
    return Measured(name, count, seconds, [*figures, _growth(before, after, count)])


@contextmanager
def filled(name: str, count: int, place: Path) -> Generator[tuple[Database, float]]:
    """Return a database with so many runs and entries, and how many seconds that took."""
    seal = Seal.new()
    with _database(name, place, seal) as database:
        began = time.perf_counter()
        filling.fill(database, count, seal)
        yield database, time.perf_counter() - began


def _medians(database: Database, count: int, rounds: int) -> dict[str, float]:
    dice = random.Random(7)  # noqa: S311 - the same cases each time
    found: dict[str, float] = {}
    for what, choose in pages.filters(count, dice).items():
        pages.ask(database, choose)
        took = timed(lambda choose=choose: pages.ask(database, choose), rounds)
        found[what] = median(took)
    return found


def _growth(before: dict[str, float], after: dict[str, float], count: int) -> Figure:
    """Return how much longer the page of a middling filter takes."""
    grown = median(after[what] / before[what] for what in before)
    what = f"a page at {count:,} entries, by that at {count // 10:,}"
    return Figure(what, grown, "×", None, "≤ 1.2 ×", grown <= 1.2)


@contextmanager
def _database(name: str, place: Path, seal: Seal) -> Generator[Database]:
    if name == "SQLite":
        database = Database(f"sqlite:///{place / 'keyturn.db'}", seal)
        schema.upgrade(database)
        yield database
        database.close()
        return
    with Postgres() as server:
        database = Database(server.new_database(), seal)
        schema.upgrade(database)
        yield database
        database.close()


def _figures(database: Database, count: int, place: Path, rounds: int) -> list[Figure]:
    dice = random.Random(7)  # noqa: S311 - the same cases each time
    figures: list[Figure] = []
    raw = timed(lambda: pages.ask_raw(database, lambda: dice.randint(1, count)), rounds)
    for what, choose in pages.filters(count, dice).items():
        pages.ask(database, choose)
        took = timed(lambda choose=choose: pages.ask(database, choose), rounds)
        figures.append(_milliseconds(f"page of 40 runs: {what}, p95", p95(took), p95(raw)))
    figures += _drawn(database, place, rounds)
    return [*figures, *_log(database, count, place), *_appends(database)]


def _milliseconds(what: str, seconds: float, raw: float | None, most: float = 15) -> Figure:
    taken = None if raw is None else raw * 1000
    return Figure(what, seconds * 1000, "ms", taken, f"≤ {most:g} ms", seconds * 1000 <= most)


def _drawn(database: Database, place: Path, rounds: int) -> list[Figure]:
    site = pages.Pages(database, place)
    found: list[Figure] = []
    for what, address in (
        ("/runs drawn, p95", "/runs"),
        ("/runs of a host drawn, p95", "/runs?host=web7"),
        ("/log drawn, p95", "/log"),
    ):
        site.get(address)
        cpu = time.process_time()
        took = timed(lambda address=address: site.get(address), rounds)
        each = rounds / (time.process_time() - cpu)
        found.append(_milliseconds(what, p95(took), None))
        name = what.replace("p95", "a core")
        found.append(Figure(name, each, "/s", None, "≥ 400 /s", each >= 400))
    return found


def _log(database: Database, count: int, place: Path) -> list[Figure]:
    def verify() -> int:
        with database.reading() as tx:
            verdict = verification.verify(tx)
        assert verdict.broken is None, verdict
        return verdict.entries

    def read() -> int:
        with database.reading() as tx:
            return sum(1 for _ in changelog.rows(tx))

    ours, raw = rates(verify, read, 1 if count > 1_000_000 else 3)
    export = place / "export.jsonl"
    began = time.perf_counter()
    with database.reading() as tx, export.open("w", encoding="utf-8") as file:
        for entry in exported(tx):
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    exporting = count / (time.perf_counter() - began)
    began = time.perf_counter()
    subprocess.run([sys.executable, _VERIFIER, export], check=True, stdout=subprocess.DEVNULL)
    alone = count / (time.perf_counter() - began)
    export.unlink()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure("verify, entries", ours, "/s", raw, "≥ 100,000 /s", ours >= 100_000),
        Figure("stand-alone verifier, entries", alone, "/s", None, "≥ 50,000 /s", alone >= 50_000),
        Figure("export, entries", exporting, "/s", raw, "streams", True),
        Figure("memory at its highest", used, "MiB", None, "≤ 500 MiB", used <= 500),
    ]


def _appends(database: Database) -> list[Figure]:
    one, raw = rates(lambda: append_each(database), lambda: raw_each(database), 5)
    many, raw_many = rates(lambda: append_batches(database), lambda: raw_batches(database), 5)
    least = 10_000 if database.embedded else 4_000
    return [
        Figure("append, each durable", one, "/s", raw, "≥ 0.5 × raw", one >= 0.5 * raw),
        Figure("append, 32 a commit", many, "/s", raw_many, f"≥ {least:,} /s", many >= least),
    ]
