"""Hints: the jobs of the distributed engine as they lie in its own tables, on PostgreSQL only."""

from dataclasses import dataclass

from sqlalchemy import text

from bot.db import priority
from bot.db.database import Transaction
from bot.db.priority import Turn

TASK = "advance"
# So many places has a rank: more than will ever wait.
_WIDTH = 100_000_000
# Whose turn it is now, and the last place that somebody has: both by an index.
_PLACES = text(
    "SELECT (SELECT max(priority) FROM procrastinate_jobs WHERE status = 'todo' "
    "AND queue_name = :queue AND priority <= :top AND priority > :least) AS now, "
    "(SELECT min(priority) FROM procrastinate_jobs WHERE status = 'todo' "
    "AND queue_name = :queue AND args ->> 'who' = :who "
    "AND priority <= :top AND priority > :least) AS mine"
)

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
class UnattendedSite:
    """A site that no worker takes anything for. seconds: how long the first hint has waited."""

    site: str
    waiting: int
    seconds: int


def list_unattended_sites(tx: Transaction, *, seconds: float) -> list[UnattendedSite]:
    """Return the sites for which something has waited so long, while nobody is at work there.

    Of a site that nobody asks anything of, nobody can tell.
    """
    found = tx.sql.execute(_UNATTENDED, {"seconds": seconds})
    return [UnattendedSite(row.site, row.waiting, row.seconds) for row in found]


def is_hint_waiting(tx: Transaction, run: int, queue: str) -> bool:
    """Say whether a hint waits that will only be taken once this transaction has ended."""
    found = tx.sql.execute(_WAITS, {"queue": queue, "run": str(run)})
    return found.first() is not None


def list_busy_runs(tx: Transaction) -> frozenset[int]:
    """Return the runs for which a hint waits, or that a worker is at which lives."""
    return frozenset(tx.sql.execute(_BUSY).scalars())


def delete_dead_hints(tx: Transaction) -> None:
    """Take away what dead workers have left."""
    tx.sql.execute(_LITTER)


def get_priority(tx: Transaction, queue: str, turn: Turn) -> int:
    """Return the priority of a hint: lower by one for each that its person has in the line.

    Hints of another rank are of another range. What is higher is taken first.
    """
    top = turn.line * _WIDTH
    known = {"queue": queue, "who": turn.who, "top": top, "least": top - _WIDTH}
    row = tx.sql.execute(_PLACES, known).one()
    # Two priorities make one place: what comes by the hundred is the later of those that share it.
    last = {} if row.mine is None else {turn.who: (top - row.mine) // 2}
    now = 0 if row.now is None else (top - row.now) // 2
    place = 2 * priority.fair_place(last, now, turn) + (turn.rank == priority.BULK)
    return max(top - place, top - _WIDTH + 1)
