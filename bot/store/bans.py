"""Bans: who is shut out, whatever the policy files say, until somebody lifts it."""

from dataclasses import dataclass

from sqlalchemy import delete, select

from bot.store import tables
from bot.store.database import Transaction
from bot.store.rote import Rote

_PEOPLE = Rote(select(tables.ban.c.person))


@dataclass(frozen=True)
class Ban:
    """Who is shut out, by whom, since when and why."""

    person: str
    by: str
    at: int
    why: str


def put(tx: Transaction, person: str, *, by: str, why: str) -> bool:
    """Shut somebody out; False if they were before."""
    return tx.insert_once(tables.ban, person=person, by=by, at=tx.now, why=why)


def lift(tx: Transaction, person: str) -> bool:
    """Let somebody in again; False if they were not shut out."""
    lifted = delete(tables.ban).where(tables.ban.c.person == person).returning(tables.ban.c.person)
    return tx.sql.execute(lifted).one_or_none() is not None


def everybody(tx: Transaction) -> list[Ban]:
    """Return every ban that holds now, the oldest first."""
    rows = tx.sql.execute(select(tables.ban).order_by(tables.ban.c.at))
    return [Ban(row.person, row.by, row.at, row.why) for row in rows]


def people(tx: Transaction) -> frozenset[str]:
    """Return the ids of all who are shut out."""
    return frozenset(row.person for row in _PEOPLE.rows(tx))
