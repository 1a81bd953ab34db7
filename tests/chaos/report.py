"""The report of `make chaos`: what each campaign came to, on one page at the end."""

from collections.abc import Callable, Iterable
from typing import Any

NAME = "chaos"
# What pytest calls `record_property`: what is recorded so comes to the report, whoever runs it.
Record = Callable[[str, object], None]


def lines(reports: Iterable[Any]) -> list[str]:
    """Return what was recorded, in the order of the words. reports: pytest's, of all that ran."""
    return sorted(
        str(value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == NAME and report.when == "call"
    )
