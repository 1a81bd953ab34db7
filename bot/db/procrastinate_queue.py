"""The jobs of the distributed engine in the tables of procrastinate, on PostgreSQL only.

A job is only a hint that a run may continue: the state of the run decides.
"""

from dataclasses import dataclass

from sqlalchemy import text

from bot.db import priority
from bot.db.database import Transaction
from bot.db.priority import Turn

TASK = "advance"
# How many places a rank has: more than will ever be queued.
_WIDTH = 100_000_000
# The place that is taken now, and the last place of a requester: both by an index.
_PLACES = text(
    "SELECT (SELECT max(priority) FROM procrastinate_jobs WHERE status = 'todo' "
    "AND queue_name = :queue AND priority <= :top AND priority > :least) AS now, "
    "(SELECT min(priority) FROM procrastinate_jobs WHERE status = 'todo' "
    "AND queue_name = :queue AND args ->> 'who' = :who "
    "AND priority <= :top AND priority > :least) AS mine"
)

# Locks the row until we commit, so that the worker that fetches the job sees our writes.
_FIND_WAITING = text(
    "SELECT id FROM procrastinate_jobs WHERE status = 'todo' AND queue_name = :queue "
    "AND args ->> 'run' = :run LIMIT 1 FOR UPDATE SKIP LOCKED"
)
_BUSY = text(
    "SELECT (jobs.args ->> 'run')::int FROM procrastinate_jobs AS jobs "
    "LEFT JOIN procrastinate_workers AS workers ON workers.id = jobs.worker_id "
    "WHERE jobs.status = 'todo' OR jobs.status = 'doing' "
    "AND workers.last_heartbeat > now() - interval '30 seconds'"
)
# Jobs that are done, or whose worker is dead: a new job is added for their runs.
_DELETE_DEAD = text(
    "DELETE FROM procrastinate_jobs WHERE id IN (SELECT id FROM procrastinate_jobs "
    "WHERE status NOT IN ('todo', 'doing') OR status = 'doing' AND worker_id IS NULL "
    "LIMIT 1000 FOR UPDATE SKIP LOCKED)"
)
# An idle worker fetches jobs every second; a busy one has a job that is `doing`.
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
    """A site with jobs but without a worker."""

    site: str
    waiting: int
    """How many jobs wait."""
    seconds: int
    """How long the oldest job has waited."""


def list_unattended_sites(tx: Transaction, *, seconds: float) -> list[UnattendedSite]:
    """Return the sites whose jobs have waited for this long without a running worker.

    A site without jobs is never returned, even if it has no worker.
    """
    rows = tx.sql.execute(_UNATTENDED, {"seconds": seconds})
    return [UnattendedSite(row.site, row.waiting, row.seconds) for row in rows]


def is_hint_waiting(tx: Transaction, run: int, queue: str) -> bool:
    """Return whether a job for the run waits, locked until this transaction ends."""
    row = tx.sql.execute(_FIND_WAITING, {"queue": queue, "run": str(run)})
    return row.first() is not None


def list_busy_runs(tx: Transaction) -> frozenset[int]:
    """Return the runs with a waiting job, or one that a live worker is doing."""
    return frozenset(tx.sql.execute(_BUSY).scalars())


def delete_dead_hints(tx: Transaction) -> None:
    """Delete jobs that are done or whose worker is dead."""
    tx.sql.execute(_DELETE_DEAD)


def get_priority(tx: Transaction, queue: str, turn: Turn) -> int:
    """Return the priority of a new job; jobs with a higher priority are fetched first.

    It is lower by one for each job that the requester has in the queue. Each rank has its own
    range of priorities.
    """
    top = turn.line * _WIDTH
    known = {"queue": queue, "who": turn.who, "top": top, "least": top - _WIDTH}
    row = tx.sql.execute(_PLACES, known).one()
    # Each place has two priorities; bulk jobs get the lower one.
    last = {} if row.mine is None else {turn.who: (top - row.mine) // 2}
    now = 0 if row.now is None else (top - row.now) // 2
    place = 2 * priority.compute_place(last, now, turn) + (turn.rank == priority.BULK)
    return max(top - place, top - _WIDTH + 1)
