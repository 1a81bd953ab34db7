"""Counts of recent requests, without those that schedules fired."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, bindparam, case, func, select

from bot.db import tables
from bot.db.database import Transaction
from bot.db.tables import PLAN_ONLY
from bot.model.run import ENDED_STATES, State


@dataclass(frozen=True)
class RequestCount:
    """Requests since a time: by one person, for one runbook, and in total."""

    by_person: int
    for_runbook: int
    in_all: int


_ENDED = [state.value for state in sorted(ENDED_STATES)]
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


def find_open_request(tx: Transaction, *, person: str, request: str) -> int | None:
    """Return the newest open run of this requester with these words; None without one.

    Plans that were not requested do not count.
    """
    query = select(func.max(_RUN.id)).where(_is_open_of(person), _RUN.request == request)
    return tx.sql.execute(query).scalar_one()


def count_open(tx: Transaction, *, person: str) -> int:
    """Count the open runs of this requester, without plans that were not requested."""
    return tx.sql.execute(select(func.count()).where(_is_open_of(person))).scalar_one()


def list_unfinished(tx: Transaction, *, person: str) -> list[int]:
    """Return the numbers of this requester's open runs, plans and undos included."""
    query = select(_RUN.id).where(
        _RUN.requested_by == person, _RUN.parent.is_(None), _RUN.state.not_in(_ENDED)
    )
    return list(tx.sql.execute(query.order_by(_RUN.id)).scalars())


def count_denied(tx: Transaction, *, person: str, since: int) -> int:
    """Count the runs of this requester that were denied since then."""
    query = select(func.count()).where(
        _RUN.requested_by == person,
        _RUN.state == State.DENIED.value,
        _RUN.parent.is_(None),
        _RUN.ended_at > since,
    )
    return tx.sql.execute(query).scalar_one()


def _is_open_of(person: str) -> ColumnElement[bool]:
    return and_(
        _RUN.requested_by == person,
        _RUN.parent.is_(None),
        _RUN.undo_of.is_(None),
        _RUN.fan_out_role < PLAN_ONLY,
        _RUN.state.not_in(_ENDED),
    )
