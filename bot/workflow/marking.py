"""Marking: what a step is called on its host, so that the host can be asked about it."""

from bot.run import Run
from bot.store import changelog, leases, shared
from bot.store.database import Transaction
from connectors.marker import Mark

_SECOND = 1_000_000


def mark_of(tx: Transaction, run: Run, n: int, *, fence: int = 0) -> Mark:
    """Return the mark of one step: no other step of any Keyturn has it.

    fence: of whoever sends it; left out, the newest, as who takes the run over has it.

    What an older backup brings back may give a run's number out a second time, so the moment that
    it was asked for is a part of its name.
    """
    first = shared.answer(tx, "first entry", lambda: changelog.first(tx))
    installation = first.hash[:12] if first else "new"
    lease = None if fence else leases.of(tx, run.id)
    fence = fence or (lease.fence if lease else 1)
    return Mark(f"{installation}-{run.id}-{run.asked // _SECOND:x}", n, fence)
