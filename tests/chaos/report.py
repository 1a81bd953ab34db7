"""The report of `make chaos`: the result of each campaign, on one page at the end."""

from collections.abc import Callable, Iterable
from typing import Any

NAME = "chaos"
# pytest's `record_property`, which carries the results from its workers to the report.
Record = Callable[[str, object], None]


def list_results(reports: Iterable[Any]) -> list[str]:
    """Return the recorded results, sorted. reports: pytest's, of all tests."""
    return sorted(
        str(value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == NAME and report.when == "call"
    )
