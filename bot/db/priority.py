"""Turns: how urgent a run is and whose it is, by which it is settled who comes next.

Broken glass goes first, then what one person waits for. Parts of a wave and fires of schedules
come by the hundred: while people wait, each of them gets eight turns for one of theirs. Among what
is equally urgent people take turns, however much each of them has asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, case, exists, func, select

from bot.db import tables
from bot.db.database import Transaction
from bot.model.run import State

URGENT, ONE, BULK = 2, 1, 0

_RUN, _FIRE, _GLASS = tables.run.c, tables.fire.c, tables.break_glass.c
# So many turns make one of those that come by the hundred.
_BULK_STEP = 8
# Runs that were asked for so shortly before those that wait tell who has had a host of late.
_OF_LATE = 500

_RANK = case(
    (exists().where(_GLASS.run == _RUN.id, _GLASS.activated_at.is_not(None)), URGENT),
    (_RUN.parent.is_not(None) | exists().where(_FIRE.run == _RUN.id), BULK),
    else_=ONE,
).label("rank")
_OF = select(_RUN.requested_by, _RANK).where(_RUN.id == bindparam("number"))
_WAITING = (_RUN.state == State.QUEUED.value) & (_RUN.hosts == "[]")
_LINE = (
    select(_RUN.requested_by, _RANK, func.min(_RUN.id).label("first"))
    .where(_WAITING, _RUN.host == bindparam("target"))
    .group_by(_RUN.requested_by, _RANK)
)
_SERVED = (
    select(_RUN.requested_by, func.max(_RUN.started_at).label("at"))
    .where(
        _RUN.host == bindparam("target"),
        _RUN.id >= bindparam("least"),
        _RUN.requested_by.in_(bindparam("people", expanding=True)),
        _RUN.started_at.is_not(None),
    )
    .group_by(_RUN.requested_by)
)
# How urgent those were that have had a host of late.
_RANKS = (
    select(_RANK)
    .where(
        _RUN.host == bindparam("target"),
        _RUN.id >= bindparam("least"),
        _RUN.started_at.is_not(None),
    )
    .order_by(_RUN.started_at.desc())
    .limit(_BULK_STEP - 1)
)
_URGENT = (
    select(_RUN.id)
    .join(tables.break_glass, _GLASS.run == _RUN.id)
    .where(_WAITING, _RUN.host == bindparam("target"), _GLASS.activated_at.is_not(None))
    .order_by(_RUN.id)
    .limit(1)
)


@dataclass(frozen=True)
class Turn:
    """rank: what is higher goes first. person: who asked."""

    rank: int = ONE
    person: str = ""

    @property
    def line(self) -> int:
        """Which line it stands in: what comes by the hundred stands in that of the others."""
        return max(self.rank, ONE)

    @property
    def who(self) -> str:
        """Whose turns are counted together."""
        return f"{self.rank} {self.person}"

    @property
    def step(self) -> int:
        return _BULK_STEP if self.rank == BULK else 1


def get_turn(tx: Transaction, run: int) -> Turn:
    row = tx.sql.execute(_OF, {"number": run}).first()
    return Turn(row.rank, row.requested_by) if row else Turn()


def next_run_at(tx: Transaction, target: str) -> int | None:
    """Return the run whose turn it is among those that wait for a host; None if none does.

    Of what is equally urgent, that of the person who has not had the host for the longest time.
    """
    line = tx.sql.execute(_LINE, {"target": target}).all()
    highest = max((row.rank for row in line), default=ONE)
    if highest == ONE and any(row.rank == BULK for row in line):
        known = {"target": target, "least": min(row.first for row in line) - _OF_LATE}
        of_late = list(tx.sql.execute(_RANKS, known).scalars())
        if len(of_late) == _BULK_STEP - 1 and BULK not in of_late:
            highest = BULK
    firsts = {row.requested_by: row.first for row in line if row.rank == highest}
    if len(firsts) < 2:
        return next(iter(firsts.values()), None)
    known = {"target": target, "people": list(firsts), "least": min(firsts.values()) - _OF_LATE}
    served = {row.requested_by: row.at for row in tx.sql.execute(_SERVED, known)}
    return min((served.get(person, 0), number) for person, number in firsts.items())[1]


def urgent_run_at(tx: Transaction, target: str) -> int | None:
    """Return the run with broken glass that waits for a host, if any does."""
    row = tx.sql.execute(_URGENT, {"target": target}).first()
    return row.id if row else None


def order_runs(tx: Transaction, numbers: Sequence[int]) -> Sequence[int]:
    """Return these runs as they will come to their turn, as far as that is known."""
    query = select(_RUN.id, _RUN.requested_by, _RANK).where(_RUN.id.in_(numbers)).order_by(_RUN.id)
    before: dict[tuple[int, str], int] = {}
    found: list[tuple[int, int, int]] = []
    for row in tx.sql.execute(query):
        mine = (row.rank, row.requested_by)
        before[mine] = before.get(mine, -1) + 1
        found.append((-row.rank, before[mine], row.id))
    return [number for _, _, number in sorted(found)]


def fair_place(last: Mapping[str, int], now: int, turn: Turn) -> int:
    """Return the place of what comes next: so many steps after what is theirs already, and after
    nobody else's than what is being taken now. last: by who it is, the last place that each has.
    Lower goes first. Pure.
    """
    return max(now - 1, last.get(turn.who, now - 1)) + turn.step
