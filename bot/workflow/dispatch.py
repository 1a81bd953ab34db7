"""The interface of dispatchers, which have runs advanced."""

from collections.abc import Collection
from typing import Protocol

from bot.db.database import Transaction


class Dispatcher(Protocol):
    """Has a thread or a worker advance a run soon after the caller's transaction commits.

    Jobs are hints: the state of runs is in the database, and a job for a run that has moved on
    does nothing.
    """

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None:
        """Enqueue a run for the workers of a site."""
        ...

    def enqueue_check(self, tx: Transaction, run_id: int, site: str) -> None:
        """Enqueue a run that only reads; slow checks do not delay changes."""
        ...

    def list_dispatched_runs(self, tx: Transaction) -> Collection[int]:
        """Return the runs that have a job waiting or in progress, and need no other."""
        ...
