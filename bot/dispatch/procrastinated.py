"""The distributed dispatcher: hints to workers, enqueued in the caller's transaction."""

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from bot.store import hints, turns
from bot.store.database import StoreUnavailable, Transaction
from bot.store.turns import Turn

if TYPE_CHECKING:
    from procrastinate import App

# The library is loaded by the processes that use it: the embedded server starts without it.


def changes(site: str) -> str:
    """Return the name of the queue of a site's changes."""
    return f"site-{site}"


def looks(site: str) -> str:
    """Return that of what only reads there: it has workers of its own, so no change waits."""
    return f"look-{site}"


def urgent(site: str) -> str:
    """Return that of broken glass there, which waits for no other run's thread."""
    return f"fast-{site}"


class Procrastinated:
    """Has the workers of a run's site advance it. For PostgreSQL only."""

    def enqueue(self, tx: Transaction, run: int, site: str) -> None:
        turn = turns.of(tx, run)
        queue = urgent(site) if turn.rank == turns.URGENT else changes(site)
        self._hint(tx, run, queue, turn)

    def look(self, tx: Transaction, run: int, site: str) -> None:
        self._hint(tx, run, looks(site), turns.of(tx, run))

    def busy(self, tx: Transaction) -> Collection[int]:
        # A hint that a dead worker took is one no more.
        hints.clear(tx)
        return hints.busy(tx)

    @cached_property
    def _app(self) -> "App":
        from procrastinate import App, SyncPsycopgConnector

        # Never opened: every job goes through the connection of the caller's transaction.
        return App(connector=SyncPsycopgConnector(conninfo="unused"))

    def _hint(self, tx: Transaction, run: int, queue: str, turn: Turn) -> None:
        from procrastinate.exceptions import ConnectorException

        if hints.waits(tx, run, queue):
            return
        job = self._app.configure_task(
            hints.TASK,
            queue=queue,
            priority=hints.place(tx, queue, turn),
            connection=tx.sql.connection.driver_connection,
        )
        try:
            job.defer(run=run, who=turn.who)
        except ConnectorException as trouble:
            raise StoreUnavailable(f"the database says: {trouble.__cause__}") from trouble
