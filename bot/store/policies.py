"""Policies: which requests wait with a plan that was made under another one."""

from sqlalchemy import select

from bot.run import State
from bot.store import tables
from bot.store.database import Transaction

_RUN = tables.run.c


def planned_under_others(tx: Transaction, version: str, *, before: int) -> list[int]:
    """Return what waits for approvals or for its turn, and was asked for by then.

    Schedules are left out: what was approved for one outlasts policies. Plans are searched where
    they are kept: there may be thousands that need not be looked at.
    """
    query = select(_RUN.id).where(
        _RUN.state.in_([State.WAITING.value, State.READY.value]),
        _RUN.place != tables.PART,
        _RUN.asked <= before,
        _RUN.timing.is_(None),
        ~_RUN.proposal.contains(f'"policy_version":"{version}"'),
    )
    return list(tx.sql.execute(query.order_by(_RUN.id)).scalars())
