"""The previous report of a check: a query that Keyturn itself answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from connectors.command import Query, Shell
from runbooks._plan import Report
from runbooks._runbook import AnyRunbook


@dataclass(frozen=True)
class EarlierReport:
    """A previous report of a check."""

    time: datetime
    """When it was made, in UTC."""
    report: Report


@dataclass(frozen=True)
class EarlierReportQuery(Query[EarlierReport | None]):
    """A query for a previous report. Keyturn answers it on behalf of the host."""

    words: str = ""
    """The words of the check."""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    """The values that the earlier request must have had."""


def query_earlier_report(check: AnyRunbook, *fields: str) -> EarlierReportQuery:
    """Query the last report of the same check on the same host, with the same *fields*.

    The result is None if there is none. On a host the query runs `true` and returns None.
    """
    values = check.model_dump(mode="json")
    same = {name: str(values[name]) for name in fields}
    return EarlierReportQuery(Shell(("true",)), lambda _: None, words=check.words, fields=same)
