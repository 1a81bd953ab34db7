"""Counts of recent requests, without those that schedules fired."""

from dataclasses import dataclass

from sqlalchemy import bindparam, case, func, select

from bot.db import tables
from bot.db.database import Transaction


@dataclass(frozen=True)
class RequestCount:
    """Requests since a time: by one person, for one runbook, and in total."""

    by_person: int
    for_runbook: int
    in_all: int


_RUN, _FIRE = tables.run.c, tables.fire.c
_ASKED = select(
    func.count(case((_RUN.requested_by == bindparam("who"), 1))).label("person"),
    func.count(case((_RUN.runbook == bindparam("what"), 1))).label("runbook"),
    func.count().label("total"),
).where(
    _RUN.requested_at > bindparam("since"),
    _RUN.parent.is_(None),
    ~select(_FIRE.run).where(_FIRE.run == _RUN.id).exists(),
)


def count_requests(tx: Transaction, *, person: str, words: str, since: int) -> RequestCount:
    """Count the requests that were made after *since*; one for several hosts is one."""
    row = tx.sql.execute(_ASKED, {"who": person, "what": words, "since": since}).one()
    return RequestCount(row.person, row.runbook, row.total)
