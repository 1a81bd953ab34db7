"""The change log: what an entry and a proof take, beside the driver."""

import json
import subprocess
import sys
import time
from pathlib import Path

from bot.audit import change_log, verification
from bot.audit.formats import export_log
from bot.db.database import Database
from tests.bench.appending import (
    append_batches,
    append_each,
    append_waves,
    raw_alone,
    raw_batches,
    raw_each,
    raw_waves,
)
from tests.bench.keeping import Filled, filled
from tests.bench.measuring import (
    Figure,
    Part,
    at_least,
    at_most,
    rates,
    resident,
    table,
    told,
)

# What is appended to: the raw driver's table, beside it, is empty.
_GROWN = 100_000
_VERIFIER = Path(__file__).parents[2] / "docs" / "verify_changelog.py"


def measured(name: str, count: int, keep: Path | None) -> Part:
    """Measure the log with so many entries.

    What runs beside the database has a tenth of them: it takes the same time for each. Entries are
    appended to a smaller one, as the history's slope tells what many change.
    """
    with filled(name, min(count, _GROWN), keep) as found:
        targets = _appends(found.database)
    with filled(name, count, keep) as found:
        targets.append(_verified(found))
        more = [_fully_verified(found)]
    with filled(name, count // 10, keep) as found:
        alone, exporting = _alone(found)
    targets.append(at_least(50_000, "stand-alone verifier --quick, entries", alone, "/s"))
    more += [
        told("export, entries", exporting, "/s"),
        at_most(500, "memory at its highest", resident("VmHWM"), "MiB"),
    ]
    text = f"{count:,} entries.\n\n{table([*targets, *more], beside='raw driver')}"
    return Part(text, [figure.of(name) for figure in targets if figure.met is not None])


def _verified(found: Filled) -> Figure:
    def verify() -> int:
        with found.database.reading() as tx:
            verdict = verification.verify_log(tx, quick=True)
        assert verdict.broken is None, verdict
        return verdict.entries

    def read() -> int:
        with found.database.reading() as tx, change_log.read_rows(tx) as rows:
            return sum(1 for _ in rows)

    ours, raw = rates(verify, read, 1 if found.entries > 1_000_000 else 3)
    return at_least(100_000, "verify --quick, entries", ours, "/s", raw)


def _fully_verified(found: Filled) -> Figure:
    """Check every signature: as many a second as the cores can."""
    began = time.perf_counter()
    with found.database.reading() as tx:
        verdict = verification.verify_log(tx)
    assert verdict.broken is None, verdict
    took = time.perf_counter() - began
    return told("verify with every signature, entries", verdict.entries / took, "/s")


def _alone(found: Filled) -> tuple[float, float]:
    """Return how many entries a second the stand-alone verifier proves, and we export."""
    export = found.place / "export.jsonl"
    count = 0
    began = time.perf_counter()
    with found.database.reading() as tx, export.open("w", encoding="utf-8") as file:
        for entry in export_log(tx):
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            count += 1
    exporting = count / (time.perf_counter() - began)
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, _VERIFIER, export, "--quick"], check=True, stdout=subprocess.DEVNULL
    )
    alone = count / (time.perf_counter() - began)
    export.unlink()
    return alone, exporting


def _appends(database: Database) -> list[Figure]:
    one, raw = rates(lambda: append_each(database), lambda: raw_each(database), 5)
    many, raw_many = rates(lambda: append_batches(database), lambda: raw_batches(database), 5)
    waves, raw_waves_ = rates(lambda: append_waves(database), lambda: raw_waves(database), 5)
    least = 10_000 if database.embedded else 4_000
    alone: list[Figure] = []
    if not database.embedded:
        again, bare = rates(lambda: append_each(database), lambda: raw_alone(database), 5)
        alone = [told("the same, by a driver that begins no transaction", again, "/s", bare)]
    return [
        Figure("append, each durable", one, "/s", raw, "≥ 0.5 × raw", one >= 0.5 * raw),
        *alone,
        at_least(least, "append, 32 a commit", many, "/s", raw_many),
        at_least(least, "append, 200 a commit", waves, "/s", raw_waves_),
    ]
