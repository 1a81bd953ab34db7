"""The aftermath of a loss: what cannot go on as tables say, since nobody knows what came after."""

from sqlalchemy import delete, func, select, update

from bot.run import BEFORE_INTENT, Run, State
from bot.store import runs, schedules, tables
from bot.store.database import Transaction
from bot.store.schedules import Outcome, Standing


def not_begun(tx: Transaction) -> list[Run]:
    """Return the runs that nothing was sent for, as far as the tables know."""
    states = [state.value for state in BEFORE_INTENT]
    query = select(tables.run.c.id).where(tables.run.c.state.in_(states))
    return [
        runs.get(tx, number)
        for number in tx.sql.execute(query.order_by(tables.run.c.id)).scalars()
    ]


def under_way(tx: Transaction) -> list[Run]:
    """Return the runs on one host that something was sent for, and whose end is not in here."""
    query = select(tables.run.c.id).where(
        tables.run.c.state == State.RUNNING.value, tables.run.c.hosts == "[]"
    )
    return [
        runs.get(tx, number)
        for number in tx.sql.execute(query.order_by(tables.run.c.id)).scalars()
    ]


def highest_run(tx: Transaction) -> int:
    return tx.sql.execute(select(func.max(tables.run.c.id))).scalar() or 0


def end_sessions(tx: Transaction) -> None:
    """Have everybody sign in anew: who was signed out since would be signed in again."""
    tx.sql.execute(delete(tables.session))
    tx.sql.execute(delete(tables.sign_in_link))


def look_ahead(tx: Transaction, why: str) -> None:
    """Let every schedule fire from now on, and never for a moment that is over."""
    for schedule in schedules.every(tx):
        if schedule.standing is Standing.ACTIVE:
            schedules.stand(tx, schedule, schedule.standing, schedule.why)
    later = tables.fire.c.outcome == Outcome.LATER.value
    missed = {"outcome": Outcome.MISSED.value, "why": why, "at": tx.now}
    tx.sql.execute(update(tables.fire).where(later).values(missed))
