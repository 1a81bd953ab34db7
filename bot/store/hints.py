"""Hints: the jobs of the distributed engine as they lie in its own tables, on PostgreSQL only."""

import json
from dataclasses import dataclass

from sqlalchemy import func, select, text

from bot.store import tables
from bot.store.database import Transaction

TASK = "advance"
# Broken glass goes first, then what one person waits for; parts of a wave and fires of schedules
# come by the hundred and wait for both.
URGENT, ONE, BULK = 20, 10, 0

# The row is kept from being fetched until we commit: who takes it sees what we have written.
_WAITS = text(
    "SELECT id FROM procrastinate_jobs WHERE status = 'todo' AND queue_name = :queue "
    "AND args ->> 'run' = :run LIMIT 1 FOR UPDATE SKIP LOCKED"
)
_BUSY = text(
    "SELECT (jobs.args ->> 'run')::int FROM procrastinate_jobs AS jobs "
    "LEFT JOIN procrastinate_workers AS workers ON workers.id = jobs.worker_id "
    "WHERE jobs.status = 'todo' OR jobs.status = 'doing' "
    "AND workers.last_heartbeat > now() - interval '30 seconds'"
)
# A job that nobody does any more, or that is done: what it was a hint of is hinted at anew.
_LITTER = text(
    "DELETE FROM procrastinate_jobs WHERE id IN (SELECT id FROM procrastinate_jobs "
    "WHERE status NOT IN ('todo', 'doing') OR status = 'doing' AND worker_id IS NULL "
    "LIMIT 1000 FOR UPDATE SKIP LOCKED)"
)
# A worker that is free looks every second. One that is not is seen by what it does.
_UNATTENDED = text(
    "SELECT substr(jobs.queue_name, 6) AS site, count(DISTINCT jobs.id) AS waiting, "
    "extract(epoch FROM now() - min(events.at))::int AS seconds FROM procrastinate_jobs AS jobs "
    "JOIN procrastinate_events AS events ON events.job_id = jobs.id AND events.type = 'deferred' "
    "WHERE jobs.status = 'todo' AND NOT EXISTS (SELECT FROM procrastinate_jobs AS others "
    "JOIN procrastinate_workers AS workers ON workers.id = others.worker_id "
    "WHERE others.queue_name = jobs.queue_name AND others.status = 'doing' "
    "AND workers.last_heartbeat > now() - interval '30 seconds') "
    "GROUP BY site HAVING min(events.at) <= now() - make_interval(secs => :seconds) ORDER BY site"
)


@dataclass(frozen=True)
class Unattended:
    """A site that no worker takes anything for. seconds: how long the first hint has waited."""

    site: str
    waiting: int
    seconds: int


def unattended(tx: Transaction, *, seconds: float) -> list[Unattended]:
    """Return the sites for which something has waited so long, while nobody is at work there.

    Of a site that nobody asks anything of, nobody can tell.
    """
    found = tx.sql.execute(_UNATTENDED, {"seconds": seconds})
    return [Unattended(row.site, row.waiting, row.seconds) for row in found]


def waits(tx: Transaction, run: int, queue: str) -> bool:
    """Say whether a hint waits that will only be taken once this transaction has ended."""
    found = tx.sql.execute(_WAITS, {"queue": queue, "run": str(run)})
    return found.first() is not None


def busy(tx: Transaction) -> frozenset[int]:
    """Return the runs for which a hint waits, or that a worker is at which lives."""
    return frozenset(tx.sql.execute(_BUSY).scalars())


def clear(tx: Transaction) -> None:
    """Take away what dead workers have left."""
    tx.sql.execute(_LITTER)


def rank(tx: Transaction, run: int) -> int:
    """Return how urgent a run is: what is higher is taken up first."""
    glass = select(func.count()).where(
        tables.glass.c.run == tables.run.c.id, tables.glass.c.broken.is_not(None)
    )
    query = select(
        tables.run.c.parent, tables.run.c.origin, glass.scalar_subquery().label("broken")
    )
    row = tx.sql.execute(query.where(tables.run.c.id == run)).one_or_none()
    if row is None:
        return ONE
    if row.broken:
        return URGENT
    return BULK if row.parent is not None or json.loads(row.origin).get("schedule") else ONE
