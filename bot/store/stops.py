"""Stops: what a person has stopped, for every process that works on this database to see."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, or_, select

from bot.run import Run
from bot.store import tables
from bot.store.among import among, as_one
from bot.store.database import Transaction
from bot.store.rote import Asked, Rote

EVERYTHING = "all"

_FIRST = Rote(
    select(tables.stop)
    .where(
        or_(*(tables.stop.c.what == bindparam(name) for name in ("first", "second", "third"))),
    )
    .order_by(tables.stop.c.at)
    .limit(1)
)
_AMONG = among(select(tables.stop.c.what), tables.stop.c.what)


@dataclass(frozen=True)
class Stop:
    """Who stopped what, when and why. what: a run's number, or EVERYTHING. at: microseconds.

    person: "" where it was done on the command line.
    """

    what: str
    person: str
    at: int
    why: str


def put(tx: Transaction, what: str, *, person: str, why: str) -> bool:
    """Stop it; False if it was stopped before."""
    return tx.insert_once(tables.stop, what=what, person=person, at=tx.now, why=why)


def lift(tx: Transaction, what: str) -> bool:
    """Let it go on; False if it was not stopped."""
    lifted = delete(tables.stop).where(tables.stop.c.what == what).returning(tables.stop.c.what)
    return tx.sql.execute(lifted).one_or_none() is not None


def of_everything(tx: Transaction) -> Stop | None:
    """Return the stop that holds for all that there is."""
    return _first(tx, EVERYTHING)


def asked_of_everything() -> Asked:
    """Return what to ask for that stop, beside other things."""
    return _FIRST.asked(first=EVERYTHING, second=EVERYTHING, third=EVERYTHING)


def found(rows: Sequence[Any]) -> Stop | None:
    """Return the stop that was asked for."""
    return Stop(rows[0].what, rows[0].person, rows[0].at, rows[0].why) if rows else None


def over(tx: Transaction, run: Run) -> Stop | None:
    """Return the stop that holds this run up: its own, that of the whole, or of everything."""
    numbers = [run.id] if run.parent is None else [run.id, run.parent]
    return _first(tx, EVERYTHING, *map(str, numbers))


def held_up(tx: Transaction, runs: Sequence[Run]) -> set[int]:
    """Return which of these are stopped, by themselves or with what they are part of."""
    if len(runs) == 1:
        return {run.id for run in runs if over(tx, run)}
    asked = {EVERYTHING, *(str(run.id) for run in runs), *(str(run.parent) for run in runs)}
    whats = {row.what for row in _AMONG.rows(tx, wanted=as_one(tx, [*asked]))}
    return {
        run.id for run in runs if whats.intersection((EVERYTHING, str(run.id), str(run.parent)))
    }


def _first(tx: Transaction, *whats: str) -> Stop | None:
    # Three at the most: itself, the whole and everything.
    first, second, third = (*whats, whats[0], whats[0])[:3]
    return found(_FIRST.rows(tx, first=first, second=second, third=third))
