"""The change log: what an entry and a proof take, beside the driver."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from bot.store import changelog, verification
from bot.store.database import Database
from bot.store.export import exported
from tests.bench.appending import (
    append_batches,
    append_each,
    append_waves,
    raw_batches,
    raw_each,
    raw_waves,
)
from tests.bench.keeping import Filled, filled
from tests.bench.measuring import Figure, rates, table

# What is appended to: the raw driver's table, beside it, is empty.
_GROWN = 100_000
_VERIFIER = Path(__file__).parents[2] / "docs" / "verify_changelog.py"


def told(name: str, count: int, keep: Path | None) -> str:
    """Measure the log with so many entries; return Markdown.

    What runs beside the database has a tenth of them: it takes the same time for each. Entries are
    appended to a smaller one, as the history's slope tells what many change.
    """
    with filled(name, min(count, _GROWN), keep) as found:
        figures = _appends(found.database)
    with filled(name, count, keep) as found:
        figures += _verified(found)
    with filled(name, count // 10, keep) as found:
        figures += _alone(found)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.append(Figure("memory at its highest", used, "MiB", None, "≤ 500 MiB", used <= 500))
    return f"{count:,} entries.\n\n{table(figures)}"


def _verified(found: Filled) -> list[Figure]:
    def verify() -> int:
        with found.database.reading() as tx:
            verdict = verification.verify(tx)
        assert verdict.broken is None, verdict
        return verdict.entries

    def read() -> int:
        with found.database.reading() as tx:
            return sum(1 for _ in changelog.rows(tx))

    ours, raw = rates(verify, read, 1 if found.entries > 1_000_000 else 3)
    return [Figure("verify, entries", ours, "/s", raw, "≥ 100,000 /s", ours >= 100_000)]


def _alone(found: Filled) -> list[Figure]:
    export = found.place / "export.jsonl"
    count = 0
    began = time.perf_counter()
    with found.database.reading() as tx, export.open("w", encoding="utf-8") as file:
        for entry in exported(tx):
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            count += 1
    exporting = count / (time.perf_counter() - began)
    began = time.perf_counter()
    subprocess.run([sys.executable, _VERIFIER, export], check=True, stdout=subprocess.DEVNULL)
    alone = count / (time.perf_counter() - began)
    export.unlink()
    return [
        Figure("stand-alone verifier, entries", alone, "/s", None, "≥ 50,000 /s", alone >= 50_000),
        Figure("export, entries", exporting, "/s", None, "streams", True),
    ]


def _appends(database: Database) -> list[Figure]:
    one, raw = rates(lambda: append_each(database), lambda: raw_each(database), 5)
    many, raw_many = rates(lambda: append_batches(database), lambda: raw_batches(database), 5)
    waves, raw_waves_ = rates(lambda: append_waves(database), lambda: raw_waves(database), 5)
    least = 10_000 if database.embedded else 4_000
    target = f"≥ {least:,} /s"
    return [
        Figure("append, each durable", one, "/s", raw, "≥ 0.5 × raw", one >= 0.5 * raw),
        Figure("append, 32 a commit", many, "/s", raw_many, target, many >= least),
        Figure("append, 200 a commit", waves, "/s", raw_waves_, target, waves >= least),
    ]
