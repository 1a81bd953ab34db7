"""Kin: the parts of a request for several hosts, looked at together."""

from collections.abc import Iterable, Sequence

from sqlalchemy import select

from bot.run import Run, State
from bot.store import runs, tables
from bot.store.database import Transaction

_RUN = tables.run.c


def parts_in(tx: Transaction, whole: int, states: Iterable[State]) -> list[Run]:
    """Return the parts of a request that are in one of these states, without their reports."""
    query = select(_RUN.id).where(_RUN.parent == whole, _RUN.state.in_(_values(states)))
    return runs.several(tx, list(tx.sql.execute(query).scalars()))[::-1]


def any_in(tx: Transaction, whole: int, states: Iterable[State]) -> bool:
    """Say whether a part of a request is in one of these states."""
    query = select(_RUN.id).where(_RUN.parent == whole, _RUN.state.in_(_values(states)))
    return tx.sql.execute(query.limit(1)).first() is not None


def hold(tx: Transaction, numbers: Sequence[int]) -> list[Run]:
    """Return these runs, without their reports, and keep others from changing them meanwhile."""
    query = select(_RUN.id).where(_RUN.id.in_(numbers)).order_by(_RUN.id)
    held = tx.sql.execute(query.with_for_update(of=tables.run)).scalars()
    return runs.several(tx, list(held))[::-1]


def _values(states: Iterable[State]) -> list[str]:
    return [state.value for state in states]
