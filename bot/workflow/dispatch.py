"""The port of the dispatchers: what the workflow needs of whoever has runs advanced."""

from collections.abc import Collection
from typing import Protocol

from bot.db.database import Transaction


class Dispatcher(Protocol):
    """Sees to it that somebody advances a run soon after the caller's transaction commits.

    That is a hint and no more: the state is in our own tables, and a hint for a run that has moved
    on does nothing.
    """

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None: ...

    def enqueue_check(self, tx: Transaction, run_id: int, site: str) -> None:
        """Do the same for a run that only reads: however slow, it keeps no change waiting."""
        ...

    def list_dispatched_runs(self, tx: Transaction) -> Collection[int]:
        """Return the runs that need no other hint: one waits, or somebody works on them."""
        ...
