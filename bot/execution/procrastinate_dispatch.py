"""The distributed dispatcher: jobs for workers, enqueued in the caller's transaction."""

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from bot.db import priority, procrastinate_queue
from bot.db.database import StoreUnavailable, Transaction
from bot.db.priority import Turn

if TYPE_CHECKING:
    from procrastinate import App

# The library is loaded by the processes that use it: the embedded server starts without it.


def get_change_queue(site: str) -> str:
    """Return the name of the queue of a site's changes."""
    return f"site-{site}"


def get_check_queue(site: str) -> str:
    """Return the name of the queue of a site's checks, which do not delay changes."""
    return f"look-{site}"


def get_urgent_queue(site: str) -> str:
    """Return the name of the queue of a site's break-glass runs, which wait for no others."""
    return f"fast-{site}"


class ProcrastinateDispatcher:
    """Has workers of the run's site advance it. PostgreSQL only."""

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None:
        turn = priority.get_turn(tx, run_id)
        queue = get_urgent_queue(site) if turn.rank == priority.URGENT else get_change_queue(site)
        self._defer_job(tx, run_id, queue, turn)

    def enqueue_check(self, tx: Transaction, run_id: int, site: str) -> None:
        self._defer_job(tx, run_id, get_check_queue(site), priority.get_turn(tx, run_id))

    def list_dispatched_runs(self, tx: Transaction) -> Collection[int]:
        # Jobs of dead workers do not count.
        procrastinate_queue.delete_dead_hints(tx)
        return procrastinate_queue.list_busy_runs(tx)

    @cached_property
    def _app(self) -> "App":
        from procrastinate import App, SyncPsycopgConnector

        # Never opened: every job goes through the connection of the caller's transaction.
        return App(connector=SyncPsycopgConnector(conninfo="unused"))

    def _defer_job(self, tx: Transaction, run_id: int, queue: str, turn: Turn) -> None:
        from procrastinate.exceptions import ConnectorException

        if procrastinate_queue.is_hint_waiting(tx, run_id, queue):
            return
        job = self._app.configure_task(
            procrastinate_queue.TASK,
            queue=queue,
            priority=procrastinate_queue.get_priority(tx, queue, turn),
            connection=tx.sql.connection.driver_connection,
        )
        try:
            job.defer(run=run_id, who=turn.who)
        except ConnectorException as error:
            raise StoreUnavailable(f"the database returned an error: {error.__cause__}") from error
