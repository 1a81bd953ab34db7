"""The change log: the time to append an entry, beside the database's own driver."""

from pathlib import Path

from tests.bench.change_log_append import append_batches, append_each, raw_batches, raw_each
from tests.bench.filled_database import open_filled_database
from tests.bench.measurements import Figure, Part, rates, set_minimum, table

# What is appended to: the raw driver's table, beside it, is empty.
_ENTRIES = 100_000


def measure(name: str, count: int, keep: Path | None) -> Part:
    """Append to a log with so many entries, one a transaction and 32 a transaction."""
    with open_filled_database(name, min(count, _ENTRIES), keep) as filled:
        one, raw = rates(
            lambda: append_each(filled.database), lambda: raw_each(filled.database), 5
        )
        many, raw_many = rates(
            lambda: append_batches(filled.database), lambda: raw_batches(filled.database), 5
        )
    figures = [
        Figure("append, each durable", one, "/s", raw, "≥ 0.35 × raw", one >= 0.35 * raw),
        set_minimum(5_000, "append, 32 a commit", many, "/s", raw_many),
    ]
    return Part(table(figures, beside="raw driver"), [figure.of(name) for figure in figures])
