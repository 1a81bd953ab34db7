"""What a check may ask Keyturn itself: what the same check saw the time before."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from connectors.command import Query, Shell
from runbooks._plan import Report
from runbooks._runbook import AnyRunbook


@dataclass(frozen=True)
class EarlierReport:
    """A report of before. at: when it was made, in UTC."""

    time: datetime
    report: Report


@dataclass(frozen=True)
class EarlierReportQuery(Query[EarlierReport | None]):
    """Whoever keeps the runs answers in the host's stead. fields: as they were asked for."""

    words: str = ""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])


def query_earlier_report(check: AnyRunbook, *fields: str) -> EarlierReportQuery:
    """Ask for the last report of the same check of the same host, with the same *fields*.

    None if there is none. A host knows nothing of it, and says so by nothing.
    """
    asked = check.model_dump(mode="json")
    same = {name: str(asked[name]) for name in fields}
    return EarlierReportQuery(Shell(("true",)), lambda _: None, words=check.words, fields=same)
