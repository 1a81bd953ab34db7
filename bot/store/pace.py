"""How many requests people made just now; what schedules fired is not theirs."""

from dataclasses import dataclass

from sqlalchemy import bindparam, case, func, select

from bot.store import tables
from bot.store.database import Transaction
from bot.store.rote import Rote


@dataclass(frozen=True)
class Asked:
    """Requests since some moment: by one person, for one runbook, and altogether."""

    by_person: int
    for_runbook: int
    in_all: int


_RUN, _FIRE = tables.run.c, tables.fire.c
_ASKED = Rote(
    select(
        func.count(case((_RUN.asked_by == bindparam("who"), 1))).label("person"),
        func.count(case((_RUN.words == bindparam("what"), 1))).label("runbook"),
        func.count().label("everybody"),
    ).where(
        _RUN.asked > bindparam("since"),
        _RUN.parent.is_(None),
        ~select(_FIRE.run).where(_FIRE.run == _RUN.id).exists(),
    )
)


def asked(tx: Transaction, *, person: str, words: str, since: int) -> Asked:
    """Count the requests that were made after *since*; one for several hosts is one."""
    row = _ASKED.row(tx, who=person, what=words, since=since)
    return Asked(row.person, row.runbook, row.everybody)
