"""How many requests people made just now; what schedules fired is not theirs."""

from dataclasses import dataclass

from sqlalchemy import case, func, select

from bot.store import tables
from bot.store.database import Transaction


@dataclass(frozen=True)
class Asked:
    """Requests since some moment: by one person, for one runbook, and altogether."""

    by_person: int
    for_runbook: int
    in_all: int


def asked(tx: Transaction, *, person: str, words: str, since: int) -> Asked:
    """Count the requests that were made after *since*; one for several hosts is one."""
    run, fire = tables.run.c, tables.fire.c
    row = tx.sql.execute(
        select(
            func.count(case((run.asked_by == person, 1))).label("person"),
            func.count(case((run.words == words, 1))).label("words"),
            func.count().label("all"),
        ).where(
            run.asked > since,
            run.parent.is_(None),
            ~select(fire.run).where(fire.run == run.id).exists(),
        )
    ).one()
    return Asked(row.person, row.words, row.all)
