"""`make bench`: fill SQLite and PostgreSQL, measure, print; the full run writes the page too."""

import argparse
import json
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bot.store import changelog, schema, verification
from bot.store.database import Database
from bot.store.export import exported
from bot.store.seal import Seal
from tests.bench import acknowledging, filling, pages
from tests.bench.appending import append_batches, append_each, raw_batches, raw_each
from tests.bench.measuring import Figure, p95, rates, table, timed
from tests.playground.postgres import Postgres

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "benchmarks.md"
_VERIFIER = _ROOT / "docs" / "verify_changelog.py"
_QUICK, _FULL = 100_000, 10_000_000


def main() -> None:
    asked = _asked()
    seal = Seal.new()
    said: list[str] = []
    with tempfile.TemporaryDirectory(dir=asked.directory) as place:
        for name in asked.on:
            with _database(name, Path(place), seal) as database:
                began = time.perf_counter()
                filling.fill(database, asked.count, seal)
                took = time.perf_counter() - began
                _say(said, f"\n## {name}, {asked.count:,} runs and as many entries\n")
                _say(said, f"Filled in {took:,.0f} s.\n")
                figures = _figures(database, asked.count, Path(place), 40 if asked.quick else 200)
                _say(said, table(figures))
    _say(said, "\n## The Slack door, on SQLite, beside a bare Bolt app\n")
    _say(said, table(acknowledging.figures(3 if asked.quick else 30)))
    if not asked.quick:
        _PAGE.write_text(_page(said), encoding="utf-8")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK:,} entries, no page")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--on", nargs="+", default=["SQLite", "PostgreSQL"])
    parser.add_argument("--directory", help="where there is room for the databases")
    asked = parser.parse_args()
    asked.count = asked.count or (_QUICK if asked.quick else _FULL)
    return asked


def _say(said: list[str], words: str) -> None:
    print(words, flush=True)
    said.append(words)


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


def _page(said: list[str]) -> str:
    head = (
        "# Benchmarks\n\n"
        "Written by `make bench`; `make bench QUICK=1` prints the same for a hundred thousand "
        "entries in less than two minutes. Each figure stands beside what the database's own "
        "driver does in the same run: rates of the machine, which differ, come out of the ratio. "
        "p95: nineteen of twenty are as quick or quicker. The raw page is forty rows of one host "
        "by its index.\n\n"
        f"Measured with Python {platform.python_version()} on {platform.system()} "
        f"{platform.machine()}.\n"
    )
    return head + "\n".join(said) + "\n"


if __name__ == "__main__":
    main()
