"""Kin: the parts of a request for several hosts, looked at together."""

from collections.abc import Iterable, Sequence
from functools import cache

from sqlalchemy import ColumnElement, bindparam, null, or_, select

from bot.run import Run, State
from bot.store import runs, tables
from bot.store.among import among, as_one
from bot.store.database import Transaction
from bot.store.rote import Rote
from bot.store.rows import run_of

_RUN = tables.run.c
# Reports lie apart, and nobody here looks at them.
_PLAIN = select(tables.run, null().label("report")).order_by(_RUN.id)
_LISTED = Rote(
    select(*runs.LISTED, null().label("report"))
    .where(_RUN.parent == bindparam("whole"))
    .order_by(_RUN.id)
)
_HELD = among(_PLAIN.with_for_update(of=tables.run), _RUN.id)
_VERSIONS = among(
    select(_RUN.id, _RUN.version).order_by(_RUN.id).with_for_update(of=tables.run), _RUN.id
)


@cache
def _parts_in(states: frozenset[State], *, held: bool) -> Rote:
    """Return the statement that finds the parts of a request that are in one of these states."""
    query = _PLAIN.where(_of_whole(states))
    return Rote(query.with_for_update(of=tables.run) if held else query)


@cache
def _one_in(states: frozenset[State]) -> Rote:
    """Return the statement that finds one of them."""
    return Rote(select(_RUN.id).where(_of_whole(states)).limit(1))


def _of_whole(states: frozenset[State]) -> ColumnElement[bool]:
    fits = or_(*(_RUN.state == state.value for state in sorted(states)))
    return (_RUN.parent == bindparam("whole")) & fits


def listed(tx: Transaction, whole: int) -> list[Run]:
    """Return all parts of a request, without their plans and reports: there may be hundreds."""
    return runs.seen(tx, _LISTED.rows(tx, whole=whole))


def parts_in(tx: Transaction, whole: int, states: Iterable[State]) -> list[Run]:
    """Return the parts of a request that are in one of these states, without their reports."""
    found = _parts_in(frozenset(states), held=False)
    return runs.seen(tx, found.rows(tx, whole=whole))


def hold_parts_in(tx: Transaction, whole: int, states: Iterable[State]) -> list[Run]:
    """Do so, and keep others from changing them until this transaction ends."""
    found = _parts_in(frozenset(states), held=True)
    return [run_of(row) for row in found.rows(tx, whole=whole)]


def any_in(tx: Transaction, whole: int, states: Iterable[State]) -> bool:
    """Say whether a part of a request is in one of these states."""
    return _one_in(frozenset(states)).row(tx, whole=whole) is not None


def hold(tx: Transaction, known: Sequence[Run]) -> list[Run]:
    """Return these runs, without their reports, and keep others from changing them meanwhile.

    known: as they were read before; those that are so still are not read again.
    """
    wanted = as_one(tx, [run.id for run in known])
    now = {row.id: row.version for row in _VERSIONS.rows(tx, wanted=wanted)}
    same = [run for run in known if now.get(run.id) == run.version]
    others = [*now.keys() - {run.id for run in same}]
    read = _HELD.rows(tx, wanted=as_one(tx, others)) if others else ()
    return [*same, *map(run_of, read)]
