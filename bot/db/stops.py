"""Stops and bans: what a person stopped and who is banned."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, select

from bot.db import tables
from bot.db.database import Transaction
from bot.model.run import Run

EVERYTHING = "all"

_FIRST = (
    select(tables.stop)
    .where(tables.stop.c.what.in_(bindparam("whats", expanding=True)))
    .order_by(tables.stop.c.stopped_at)
    .limit(1)
)
_AMONG = select(tables.stop.c.what).where(
    tables.stop.c.what.in_(bindparam("wanted", expanding=True))
)


@dataclass(frozen=True)
class Stop:
    """Who stopped what, when and why."""

    what: str
    """The number of a run, or EVERYTHING."""
    person: str
    """Empty if it was done on the command line."""
    stopped_at: int
    """Microseconds since 1970, UTC."""
    reason: str


def add_stop(tx: Transaction, what: str, *, person: str, why: str) -> bool:
    """Add a stop; False if there is one already."""
    return tx.insert_once(tables.stop, what=what, person=person, stopped_at=tx.now, reason=why)


def remove_stop(tx: Transaction, what: str) -> bool:
    """Remove a stop; False if there is none."""
    lifted = delete(tables.stop).where(tables.stop.c.what == what).returning(tables.stop.c.what)
    return tx.sql.execute(lifted).one_or_none() is not None


def get_stop_of_everything(tx: Transaction) -> Stop | None:
    """Return the stop of everything, if there is one."""
    return _first(tx, EVERYTHING)


def get_stop_of_run(tx: Transaction, run: Run) -> Stop | None:
    """Return the stop that applies to this run: its own, its parent's, or that of everything."""
    numbers = [run.id] if run.parent is None else [run.id, run.parent]
    return _first(tx, EVERYTHING, *map(str, numbers))


def list_stopped_runs(tx: Transaction, runs: Sequence[Run]) -> set[int]:
    """Return which of these runs are stopped, directly, by their parent or with everything."""
    if len(runs) == 1:
        return {run.id for run in runs if get_stop_of_run(tx, run)}
    asked = {EVERYTHING, *(str(run.id) for run in runs), *(str(run.parent) for run in runs)}
    whats = {row.what for row in tx.sql.execute(_AMONG, {"wanted": list(asked)}).all()}
    return {
        run.id for run in runs if whats.intersection((EVERYTHING, str(run.id), str(run.parent)))
    }


def _first(tx: Transaction, *whats: str) -> Stop | None:
    row = tx.sql.execute(_FIRST, {"whats": whats}).first()
    return Stop(*row) if row else None


_PEOPLE = select(tables.ban.c.person)


@dataclass(frozen=True)
class Ban:
    """A person who is banned."""

    person: str
    banned_by: str
    banned_at: int
    """Microseconds since 1970, UTC."""
    reason: str


def add_ban(tx: Transaction, person: str, *, by: str, why: str) -> bool:
    """Ban a person; False if they are banned already."""
    return tx.insert_once(tables.ban, person=person, banned_by=by, banned_at=tx.now, reason=why)


def remove_ban(tx: Transaction, person: str) -> bool:
    """Unban a person; False if they are not banned."""
    lifted = delete(tables.ban).where(tables.ban.c.person == person).returning(tables.ban.c.person)
    return tx.sql.execute(lifted).one_or_none() is not None


def list_bans(tx: Transaction) -> list[Ban]:
    """Return all bans, the oldest first."""
    rows = tx.sql.execute(select(tables.ban).order_by(tables.ban.c.banned_at))
    return [Ban(*row) for row in rows]


def list_banned_people(tx: Transaction) -> frozenset[str]:
    """Return the IDs of all banned people."""
    return frozenset(row.person for row in tx.sql.execute(_PEOPLE).all())
