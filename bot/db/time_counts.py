"""Count records by time, for histograms."""

from collections.abc import Mapping
from dataclasses import dataclass

from bot.db.database import Transaction
from bot.db.sql_text import fetch_rows


@dataclass(frozen=True)
class CountedTimes:
    """The times of the records to count."""

    sql: str
    """A query that returns each time as `at`, in microseconds since 1970."""
    given: Mapping[str, object]
    """The parameters that it names."""
    is_complete: bool
    """Whether older records that match are counted too."""


def get_period(tx: Transaction, times: CountedTimes) -> tuple[int, int, int] | None:
    """Return the first time, the last, and how many there are; None if there are none."""
    query = f"SELECT min(at), max(at), count(*) FROM ({times.sql}) AS counted"  # noqa: S608 - ours
    [(first, last, count)] = fetch_rows(tx, query, times.given)
    return (first, last, count) if count else None


def count_by_step(
    tx: Transaction, times: CountedTimes, *, first: int, step: int
) -> dict[int, int]:
    """Return the number of records by the number of the step. first: where step 0 begins."""
    query = (
        "SELECT (at - :counted_from) / :step AS n, count(*) "  # noqa: S608 - ours
        f"FROM ({times.sql}) AS counted GROUP BY n"
    )
    given = {**times.given, "counted_from": first, "step": step}
    return dict(map(tuple, fetch_rows(tx, query, given)))
