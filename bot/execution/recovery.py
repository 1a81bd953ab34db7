"""Recover the runs of workers that have ended.

A run of which nothing was sent is queued again. A run between two steps continues if another
worker takes it within minutes, and otherwise ends as stopped. A run with a step under way has an
unknown outcome.
"""

import logging

from bot.audit import change_log, events, evidence
from bot.db import leases, locks, runs
from bot.db.database import Transaction
from bot.model.run import Run, State, StepState
from bot.model.times import MINUTE
from bot.queries import stop_reasons
from bot.workflow import requests
from bot.workflow.context import WorkflowContext, get_site
from bot.workflow.finish import end_run

log = logging.getLogger(__name__)


_UNKNOWN_OUTCOME = (
    "Keyturn stopped, or lost its database, while a step was under way: its outcome is unknown"
)
_EVIDENCE_MISSING = (
    "The change log does not confirm {}: the database may have been altered. Run `keyturn "
    "changelog verify`"
)
# A run that was interrupted longer ago is not continued without people seeing it.
_MAX_RESUME_AGE = 10 * MINUTE


class RecoveryService:
    """Finds and recovers abandoned runs."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context
        self._expired_leases: set[tuple[int, int]] = set()

    def recover_unfinished_runs(self) -> None:
        """Recover all unfinished runs: no other process works on them."""
        with self._context.database.transaction() as tx:
            for run in runs.list_unfinished(tx):
                self.recover_run(tx, run)

    def recover_expired_leases(self) -> None:
        """Take over runs whose leases have expired.

        Only leases that had expired at the previous check, too: after an outage of the database,
        workers first need time to renew theirs.
        """
        with self._context.database.reading() as tx:
            found = leases.list_expired(tx)
        again, self._expired_leases = found & self._expired_leases, found
        for number, fence in again:
            if number not in self._context.lease_keeper.leased_runs:
                self._take_over_run(number, fence)

    def recover_run(self, tx: Transaction, run: Run) -> None:
        """Queue or end one run, which the transaction has locked."""
        if run.state is State.RUNNING and not run.hosts:
            leases.revoke_lease(tx, run.id)
            why = self._end_between_steps(tx, run)
            if not why:
                return
            summary = f"{why}. {run.host} stays locked until an owner resolves this run."
            end_run(self._context, tx, run, State.UNKNOWN, summary)
            return
        hand_over_run(self._context, tx, run)

    def _take_over_run(self, number: int, fence: int) -> None:
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            lease = leases.get_lease(tx, number)
            # Checked while the run is locked, so that it cannot pass the gate meanwhile.
            if lease is None or lease.fence != fence or lease.expires_at > tx.now:
                return
            if run.state not in {State.STARTING, State.RUNNING}:
                return
            if lease.worker:
                log.warning("run %d is taken over from %s", number, lease.worker)
                change_log.append_entry(
                    tx, events.LeaseTakenOver(worker=lease.worker, fence=fence), run=run
                )
            if can_resume(tx, run):
                leases.revoke_lease(tx, run.id)
                wake_run(self._context, tx, run)
            else:
                self.recover_run(tx, run)

    def _end_between_steps(self, tx: Transaction, run: Run) -> str:
        """End a run if the outcome of each sent step is known; return why not otherwise."""
        records = runs.list_steps(tx, run.id)
        if not records or any(each.state is not StepState.SUCCEEDED for each in records):
            return _UNKNOWN_OUTCOME
        if doubt := evidence.find_mismatch_of_steps(tx, run):
            return _EVIDENCE_MISSING.format(doubt)
        if len(records) < run.step_count:
            summary = stop_reasons.describe_stopped_run(tx, run, "Keyturn itself stopped")
            end_run(self._context, tx, run, State.STOPPED, summary)
        else:
            why = (
                "Every step succeeded, but Keyturn stopped before it verified the result: it does "
                f"so now. {run.host} stays locked until then."
            )
            end_run(self._context, tx, run, State.UNKNOWN, why)
        return ""


def hand_over_run(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Hand over one run at shutdown. It is locked by the transaction, and no step is active."""
    leases.revoke_lease(tx, run.id)
    if run.state is State.STARTING and not run.hosts:
        locks.release_locks(tx, run.id)
        run = runs.move_run(tx, run, State.QUEUED)
    wake_run(context, tx, run)


def can_resume(tx: Transaction, run: Run) -> bool:
    """Return whether another worker may continue: the last step ended a short time ago."""
    records = runs.list_steps(tx, run.id)
    return (
        run.state is State.RUNNING
        and bool(records)
        and all(each.state is StepState.SUCCEEDED for each in records)
        and tx.now - max(each.ended_at or 0 for each in records) < _MAX_RESUME_AGE
        and not evidence.find_mismatch_of_steps(tx, run)
    )


def wake_run(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Have the run advanced by a worker of its site."""
    enqueue = (
        context.dispatcher.enqueue_check
        if requests.is_read_only(run)
        else context.dispatcher.enqueue_run
    )
    enqueue(tx, run.id, get_site(context, run.host))
