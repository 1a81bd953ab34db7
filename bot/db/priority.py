"""Priority: which queued run starts next on a host, by its urgency and its requester.

Break-glass runs start first, then runs that a person requested directly. Child runs and scheduled
runs come in hundreds: while direct runs wait, eight of them start for each of these. Among equally
urgent runs, requesters take turns, regardless of how many runs each has requested.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, case, exists, func, select

from bot.db import tables
from bot.db.database import Transaction
from bot.model.run import State

URGENT, DIRECT, BULK = 2, 1, 0

_RUN, _FIRE, _BREAK_GLASS = tables.run.c, tables.fire.c, tables.break_glass.c
_DECISION = tables.decision.c
# One bulk run starts after this many others.
_BULK_STEP = 8
# How many run numbers before the queued runs are searched for recent runs on the host.
_RECENT = 500

_IS_URGENT = exists().where(_BREAK_GLASS.run == _RUN.id, _BREAK_GLASS.activated_at.is_not(None))
_RANK = case(
    (_IS_URGENT, URGENT),
    (_RUN.parent.is_not(None) | exists().where(_FIRE.run == _RUN.id), BULK),
    else_=DIRECT,
).label("rank")
_GET = select(_RUN.requested_by, _RANK).where(_RUN.id == bindparam("number"))
_WAITING = (_RUN.state == State.QUEUED.value) & (_RUN.hosts == "[]")
# A run that was approved to start later is woken at its time; until then, the others go first.
_STARTS_LATER = ~_IS_URGENT & exists().where(
    _DECISION.run == _RUN.id,
    _DECISION.digest == _RUN.digest,
    _DECISION.start_at > bindparam("now"),
)
_LINE = (
    select(_RUN.requested_by, _RANK, func.min(_RUN.id).label("first"))
    .where(_WAITING, _RUN.host == bindparam("target"), ~_STARTS_LATER)
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
# The urgency of the most recent runs on a host.
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
    .join(tables.break_glass, _BREAK_GLASS.run == _RUN.id)
    .where(_WAITING, _RUN.host == bindparam("target"), _BREAK_GLASS.activated_at.is_not(None))
    .order_by(_RUN.id)
    .limit(1)
)


@dataclass(frozen=True)
class Turn:
    """The urgency and requester of a run."""

    rank: int = DIRECT
    """URGENT, DIRECT or BULK; a higher rank starts first."""
    person: str = ""
    """The requester."""

    @property
    def line(self) -> int:
        """The queue that it waits in: bulk runs share the queue of direct runs."""
        return max(self.rank, DIRECT)

    @property
    def who(self) -> str:
        """The rank and requester whose runs are counted together."""
        return f"{self.rank} {self.person}"

    @property
    def step(self) -> int:
        return _BULK_STEP if self.rank == BULK else 1


def get_turn(tx: Transaction, run: int) -> Turn:
    """Return the urgency and requester of a run."""
    row = tx.sql.execute(_GET, {"number": run}).first()
    return Turn(row.rank, row.requested_by) if row else Turn()


def get_next_run(tx: Transaction, target: str) -> int | None:
    """Return the run that starts next on a host; None if none is queued.

    Of equally urgent runs, the one whose requester has not used the host for the longest time.
    """
    line = tx.sql.execute(_LINE, {"target": target, "now": tx.now}).all()
    highest = max((row.rank for row in line), default=DIRECT)
    if highest == DIRECT and any(row.rank == BULK for row in line):
        known = {"target": target, "least": min(row.first for row in line) - _RECENT}
        recent = list(tx.sql.execute(_RANKS, known).scalars())
        if len(recent) == _BULK_STEP - 1 and BULK not in recent:
            highest = BULK
    firsts = {row.requested_by: row.first for row in line if row.rank == highest}
    if len(firsts) < 2:
        return next(iter(firsts.values()), None)
    known = {"target": target, "people": list(firsts), "least": min(firsts.values()) - _RECENT}
    served = {row.requested_by: row.at for row in tx.sql.execute(_SERVED, known)}
    return min((served.get(person, 0), number) for person, number in firsts.items())[1]


def get_urgent_run(tx: Transaction, target: str) -> int | None:
    """Return the break-glass run that is queued for a host; None if there is none."""
    row = tx.sql.execute(_URGENT, {"target": target}).first()
    return row.id if row else None


def order_runs(tx: Transaction, numbers: Sequence[int]) -> Sequence[int]:
    """Return these runs in the order in which they will probably start."""
    query = select(_RUN.id, _RUN.requested_by, _RANK).where(_RUN.id.in_(numbers)).order_by(_RUN.id)
    before: dict[tuple[int, str], int] = {}
    found: list[tuple[int, int, int]] = []
    for row in tx.sql.execute(query):
        mine = (row.rank, row.requested_by)
        before[mine] = before.get(mine, -1) + 1
        found.append((-row.rank, before[mine], row.id))
    return [number for _, _, number in sorted(found)]


def compute_place(last: Mapping[str, int], now: int, turn: Turn) -> int:
    """Return the place of a new run in the queue; lower places start first.

    It follows the last place of the same rank and requester, and what is being taken now.
    last: the last place by `Turn.who`. now: the place that is being taken.
    """
    return max(now - 1, last.get(turn.who, now - 1)) + turn.step
