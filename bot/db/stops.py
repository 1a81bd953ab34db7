"""Stops and bans: what a person stopped and who is banned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, or_, select

from bot.db import tables
from bot.db.among import among, as_one
from bot.db.database import Transaction
from bot.db.prepared import Asked, PreparedStatement
from bot.model.run import Run

EVERYTHING = "all"

_FIRST = PreparedStatement(
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


def add_stop(tx: Transaction, what: str, *, person: str, why: str) -> bool:
    """Stop it; False if it was stopped before."""
    return tx.insert_once(tables.stop, what=what, person=person, at=tx.now, why=why)


def remove_stop(tx: Transaction, what: str) -> bool:
    """Let it go on; False if it was not stopped."""
    lifted = delete(tables.stop).where(tables.stop.c.what == what).returning(tables.stop.c.what)
    return tx.sql.execute(lifted).one_or_none() is not None


def get_stop_of_everything(tx: Transaction) -> Stop | None:
    """Return the stop that holds for all that there is."""
    return _first(tx, EVERYTHING)


def stop_of_everything_query() -> Asked:
    """Return what to ask for that stop, beside other things."""
    return _FIRST.asked(first=EVERYTHING, second=EVERYTHING, third=EVERYTHING)


def read_stop(rows: Sequence[Any]) -> Stop | None:
    """Return the stop that was asked for."""
    return Stop(rows[0].what, rows[0].person, rows[0].at, rows[0].why) if rows else None


def get_stop_of_run(tx: Transaction, run: Run) -> Stop | None:
    """Return the stop that holds this run up: its own, that of the whole, or of everything."""
    numbers = [run.id] if run.parent is None else [run.id, run.parent]
    return _first(tx, EVERYTHING, *map(str, numbers))


def list_stopped_runs(tx: Transaction, runs: Sequence[Run]) -> set[int]:
    """Return which of these are stopped, by themselves or with what they are part of."""
    if len(runs) == 1:
        return {run.id for run in runs if get_stop_of_run(tx, run)}
    asked = {EVERYTHING, *(str(run.id) for run in runs), *(str(run.parent) for run in runs)}
    whats = {row.what for row in _AMONG.rows(tx, wanted=as_one(tx, [*asked]))}
    return {
        run.id for run in runs if whats.intersection((EVERYTHING, str(run.id), str(run.parent)))
    }


def _first(tx: Transaction, *whats: str) -> Stop | None:
    # Three at the most: itself, the whole and everything.
    first, second, third = (*whats, whats[0], whats[0])[:3]
    return read_stop(_FIRST.rows(tx, first=first, second=second, third=third))


_PEOPLE = PreparedStatement(select(tables.ban.c.person))


@dataclass(frozen=True)
class Ban:
    """Who is shut out, by whom, since when and why."""

    person: str
    by: str
    at: int
    why: str


def add_ban(tx: Transaction, person: str, *, by: str, why: str) -> bool:
    """Shut somebody out; False if they were before."""
    return tx.insert_once(tables.ban, person=person, by=by, at=tx.now, why=why)


def remove_ban(tx: Transaction, person: str) -> bool:
    """Let somebody in again; False if they were not shut out."""
    lifted = delete(tables.ban).where(tables.ban.c.person == person).returning(tables.ban.c.person)
    return tx.sql.execute(lifted).one_or_none() is not None


def list_bans(tx: Transaction) -> list[Ban]:
    """Return every ban that holds now, the oldest first."""
    rows = tx.sql.execute(select(tables.ban).order_by(tables.ban.c.at))
    return [Ban(row.person, row.by, row.at, row.why) for row in rows]


def list_banned_people(tx: Transaction) -> frozenset[str]:
    """Return the ids of all who are shut out."""
    return frozenset(row.person for row in _PEOPLE.rows(tx))
