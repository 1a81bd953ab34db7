"""Recovering: what a worker has left is taken up, or ended, by whoever finds it.

A run that nothing was sent for yet is ready again. One between two steps goes on where another
worker has it within minutes, and ends with what was done where a new process finds it. One with a
step under way is unknown: nobody saw its end.
"""

import logging

from bot.run import Run, State, StepState
from bot.store import changelog, leases, locks, runs, testimony
from bot.store.database import Transaction
from bot.workflow import asking, stopped
from bot.workflow.ending import end
from bot.workflow.parts import Parts, site_of

log = logging.getLogger(__name__)


_NOT_SEEN = (
    "Keyturn stopped, or lost its database, while a step was under way, so nobody saw its end"
)
_DOUBTED = (
    "The change log does not bear out {}: somebody may have altered the database. `keyturn "
    "changelog verify` tells whether that is so"
)
# Longer ago, and what was approved is too old to go on with unseen.
_MOMENT = 600 * 1_000_000


class Recovering:
    """Looks for what was left."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lapsed: set[tuple[int, int]] = set()

    def everything(self) -> None:
        """Take up all that is not over: whoever had it is gone for good."""
        with self._parts.database.transaction() as tx:
            for run in runs.unfinished(tx):
                self.take_up(tx, run)

    def lapsed(self) -> None:
        """Take over what workers have in hand that are not heard of any more.

        Only what was so at the last look too: when the database comes back, those who live say so.
        """
        with self._parts.database.reading() as tx:
            found = leases.lapsed(tx)
        again, self._lapsed = found & self._lapsed, found
        for number, fence in again:
            if number not in self._parts.worker.holding:
                self._take_over(number, fence)

    def take_up(self, tx: Transaction, run: Run) -> None:
        """Take up one run, which the transaction holds, or end it."""
        if run.state is State.RUNNING and not run.hosts:
            leases.revoke(tx, run.id)
            why = self._left_between_steps(tx, run)
            if not why:
                return
            summary = f"{why}. {run.host} stays locked until an owner settles this run."
            end(self._parts, tx, run, State.UNKNOWN, summary)
            return
        hand_over(self._parts, tx, run)

    def _take_over(self, number: int, fence: int) -> None:
        with self._parts.database.transaction() as tx:
            run = runs.hold(tx, number)
            lease = leases.of(tx, number)
            # Looked at while the run is held: nobody passes the gate with it meanwhile.
            if lease is None or lease.fence != fence or lease.until > tx.now:
                return
            if run.state not in {State.STARTING, State.RUNNING}:
                return
            if lease.worker:
                log.warning("run %d is taken over from %s", number, lease.worker)
                changelog.append(
                    tx, "taken over", run=run.id, host=run.host, worker=lease.worker, fence=fence
                )
            if goes_on(tx, run):
                leases.revoke(tx, run.id)
                wake(self._parts, tx, run)
            else:
                self.take_up(tx, run)

    def _left_between_steps(self, tx: Transaction, run: Run) -> str:
        """End a run of whose every step that was sent the end is known; say why it is none."""
        records = runs.steps(tx, run.id)
        if not records or any(each.state is not StepState.SUCCEEDED for each in records):
            return _NOT_SEEN
        if doubt := testimony.against_steps(tx, run):
            return _DOUBTED.format(doubt)
        if run.proposal is not None and len(records) < len(run.proposal.steps):
            said = stopped.told(tx, run, "Stopped, since Keyturn itself was")
            end(self._parts, tx, run, State.STOPPED, said)
        else:
            why = (
                "Every step was done, but Keyturn stopped before it read the proof: it reads that "
                f"now. {run.host} stays locked until then."
            )
            end(self._parts, tx, run, State.UNKNOWN, why)
        return ""


def hand_over(parts: Parts, tx: Transaction, run: Run) -> None:
    """Give up one run, which the transaction holds and nothing is under way for: we end."""
    leases.revoke(tx, run.id)
    if run.state is State.STARTING and not run.hosts:
        locks.release(tx, run.id)
        run = runs.move(tx, run, State.READY)
    wake(parts, tx, run)


def goes_on(tx: Transaction, run: Run) -> bool:
    """Say whether another worker may do the rest: it was between two steps a moment ago."""
    records = runs.steps(tx, run.id)
    return (
        run.state is State.RUNNING
        and bool(records)
        and all(each.state is StepState.SUCCEEDED for each in records)
        and tx.now - max(each.ended or 0 for each in records) < _MOMENT
        and not testimony.against_steps(tx, run)
    )


def wake(parts: Parts, tx: Transaction, run: Run) -> None:
    """Have the run advanced by whoever reaches its host."""
    lane = parts.dispatch.look if asking.only_looks(run) else parts.dispatch.enqueue
    lane(tx, run.id, site_of(parts, run.host))
