"""The change log: the time to append an entry, beside the database's own driver, and to verify."""

from pathlib import Path
from statistics import median

from bot.audit import verification
from tests.bench.change_log_append import append_batches, append_each, raw_batches, raw_each
from tests.bench.filled_database import FilledDatabase, open_filled_database
from tests.bench.measurements import Figure, Part, rates, set_maximum, set_minimum, table, timed

# What is appended to, a busy day: the raw driver's table, beside it, is empty.
_ENTRIES = 100_000
_MANY = 1_000_000


def measure(name: str, count: int, keep: Path | None) -> Part:
    """Append to a log with so many entries, one a transaction and 32 a transaction.

    And verify it, and a longer one.
    """
    longer = min(count, _MANY)
    with open_filled_database(name, min(count, _ENTRIES), keep) as filled:
        day = _time_verification(filled, 3)
        one, raw = rates(
            lambda: append_each(filled.database), lambda: raw_each(filled.database), 5
        )
        many, raw_many = rates(
            lambda: append_batches(filled.database), lambda: raw_batches(filled.database), 5
        )
    with open_filled_database(name, longer, keep) as filled:
        whole = _time_verification(filled, 1)
    figures = [
        Figure("append, each durable", one, "/s", raw, "≥ 0.35 × raw", one >= 0.35 * raw),
        set_minimum(5_000, "append, 32 a commit", many, "/s", raw_many),
        set_maximum(5, f"verification of {min(count, _ENTRIES):,} entries", day, "s"),
        set_maximum(30, f"verification of {longer:,} entries", whole, "s"),
    ]
    return Part(table(figures, beside="raw driver"), [figure.of(name) for figure in figures])


def _time_verification(filled: FilledDatabase, rounds: int) -> float:
    """Return the seconds in which every hash, root and output of the log is checked."""

    def verify() -> None:
        with filled.database.reading() as tx:
            verdict = verification.verify_log(tx)
        assert verdict.broken is None, verdict.why
        assert verdict.entries >= filled.entries

    return median(timed(verify, rounds))
