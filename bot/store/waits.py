"""Waits: how long requests waited for their approvals, and what came of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from sqlalchemy import bindparam, func, select

from bot.run import State
from bot.store import search, sights, tables
from bot.store.database import Transaction
from bot.store.rote import Rote

_RUN, _VOTE = tables.run.c, tables.vote.c
# Of so many requests, the newest, the usual wait is told.
_ENOUGH_TO_TELL = 50
_USUAL = (
    select((_RUN.started - _RUN.asked).label("wait"))
    .where(
        _RUN.words == bindparam("what"),
        _RUN.needed > 0,
        _RUN.started.is_not(None),
    )
    .order_by(_RUN.id.desc())
    .limit(_ENOUGH_TO_TELL)
)
_WAITS = Rote(_USUAL)


@dataclass(frozen=True)
class Wait:
    """One request that took approvals. asked: microseconds. length: from when it was shown until
    its last approval, or its end without one; None while it waits. approved: it got what it took.
    """

    run: int
    words: str
    area: str
    asked_by: str
    asked: int
    state: State
    length: int | None
    approved: bool


def horizon(tx: Transaction, moment: int, *, most: int) -> int:
    """Return the moment, or a later one since which no more than so many runs were asked for."""
    query = select(_RUN.asked).where(_RUN.asked >= moment, sights.of_runs(tx).clause())
    query = query.order_by(_RUN.asked.desc())
    beyond = tx.sql.execute(query.offset(most).limit(1)).scalar()
    return moment if beyond is None else beyond + 1


def since(tx: Transaction, moment: int) -> Iterator[Wait]:
    """Yield every request since then that waited for approvals; one for several hosts is one."""
    # By number: all runs, and all votes, that ever were need not be walked for it.
    first = search.first_since(tx, moment) or 0
    keys = (
        select(_VOTE.run, func.count().label("n"), func.max(_VOTE.at).label("at"))
        .join(tables.run, _RUN.id == _VOTE.run)
        .where(_VOTE.run >= first, _RUN.asked >= moment, _VOTE.yes)
        .group_by(_VOTE.run)
        .subquery()
    )
    query = (
        select(
            _RUN.id,
            _RUN.words,
            _RUN.area,
            _RUN.asked_by,
            _RUN.asked,
            _RUN.state,
            _RUN.shown,
            _RUN.needed,
            _RUN.ended,
            keys.c.n,
            keys.c.at,
        )
        .outerjoin(keys, keys.c.run == _RUN.id)
        .where(
            _RUN.id >= first,
            _RUN.asked >= moment,
            _RUN.place != tables.PART,
            _RUN.needed > 0,
            _RUN.shown.is_not(None),
            _RUN.grant_id.is_(None),
            sights.of_runs(tx).clause(),
        )
        .order_by(_RUN.id)
    )
    for row in tx.sql.execute(query):
        approved = (row.n or 0) >= row.needed
        until = row.at if approved else row.ended
        yield Wait(
            row.id,
            row.words,
            row.area,
            row.asked_by,
            row.asked,
            State(row.state),
            None if until is None else max(until - row.shown, 0),
            approved,
        )


def usual_wait(tx: Transaction, words: str) -> int | None:
    """Return the median wait from asking to starting, in microseconds, of the newest runs of a
    runbook that took an approval; None if there are none yet."""
    if sights.sees_everything(tx):
        lengths = [row.wait for row in _WAITS.rows(tx, what=words)]
    else:
        # Of the runs that whoever is told may view.
        seen = _USUAL.where(sights.of_runs(tx).clause())
        lengths = [*tx.sql.execute(seen, {"what": words}).scalars()]
    return round(median(lengths)) if lengths else None
