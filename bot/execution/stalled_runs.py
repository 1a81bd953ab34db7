"""Find runs that no one is working on, and report sites without a worker."""

from collections.abc import Collection, Sequence

from bot.db import break_glass, locks, priority, procrastinate_queue, runs
from bot.db.database import Transaction
from bot.execution import gate
from bot.model.run import Run, State
from bot.model.run_states import is_on_hold, starts_later
from bot.model.times import SECOND
from bot.model.waiting import Waiting, WaitingFor
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext


def list_stalled_runs(
    context: WorkflowContext,
    tx: Transaction,
    active_runs: Sequence[Run],
    being_read: Collection[int],
) -> list[Run]:
    """Return the runs of *active_runs* to wake. being_read: runs that a thread works on.

    For each host without a lock, the first waiting run is woken. Runs that wait for the end of a
    freeze, or for their approved start, are left alone until then.
    """
    busy = {*context.dispatcher.list_dispatched_runs(tx), *being_read}
    found = [run for run in active_runs if run.id not in busy and _needs_no_host(run)]
    holds = _HoldCheck(context, tx)
    for line in _group_by_free_host(tx, active_runs):
        awake = [run for run in line if not holds.is_still_held(run)]
        found += [run for run in awake if is_on_hold(run) and run.id not in busy]
        if awake and busy.isdisjoint(run.id for run in line):
            first = priority.order_runs(tx, [run.id for run in awake])[0]
            found += [run for run in awake if run.id == first and not is_on_hold(run)]
    return found


def _needs_no_host(run: Run) -> bool:
    ready = run.state is State.QUEUED and run.timing is not None
    return bool(run.hosts) or run.state is State.PLANNING or ready


def _group_by_free_host(tx: Transaction, active_runs: Sequence[Run]) -> list[list[Run]]:
    """Return the waiting runs of each host that is not locked."""
    locked = {lock.target for lock in locks.list_locks(tx)}
    lines: dict[str, list[Run]] = {}
    for run in active_runs:
        if run.state is State.QUEUED and run.host not in locked and not _needs_no_host(run):
            lines.setdefault(run.host, []).append(run)
    return [*lines.values()]


class _HoldCheck:
    """Whether runs wait for a time. There may be thousands, so each freeze is read once."""

    def __init__(self, context: WorkflowContext, tx: Transaction) -> None:
        self._policy, self._tx = _get_policy(context), tx
        self._break_glass_runs = break_glass.list_active(tx)
        self._freezes: dict[tuple[str, str], Waiting | None] = {}

    def is_still_held(self, run: Run) -> bool:
        """Return whether the run is still held by the freeze or the time that was reported."""
        if run.waiting is None or run.id in self._break_glass_runs or not is_on_hold(run):
            return False
        if starts_later(run):
            return self._tx.now < (run.waiting.time or 0)
        if self._policy is None:
            return False
        place = (run.host, run.runbook)
        if place not in self._freezes:
            freeze = self._policy.find_freeze([run.host], runbook=run.runbook, now=self._tx.now)
            self._freezes[place] = freeze and freeze.redact(self._tx.redactor.redact_text)
        return run.waiting == self._freezes[place]


def _get_policy(context: WorkflowContext) -> Policy | None:
    try:
        return context.policies.get_policy()
    except NoPolicyError:
        return None


# Free workers poll every second: a run that has waited so long has no worker.
_UNATTENDED_SECONDS = 15.0


def record_unattended_sites(
    context: WorkflowContext, tx: Transaction, active_runs: Sequence[Run]
) -> None:
    """Record once for each run that its site has no worker, if that is so. PostgreSQL only.

    Child runs are reported with their parent until they start.
    """
    unattended = {
        one.site: one.seconds
        for one in procrastinate_queue.list_unattended_sites(tx, seconds=_UNATTENDED_SECONDS)
    }
    if not unattended:
        return
    for run in active_runs:
        found = sorted(unattended.keys() & _list_next_sites(context, run))
        if not found or (run.waiting and run.waiting.reason is WaitingFor.WORKER):
            continue
        # It needs no worker yet, and can be held until then.
        if starts_later(run) and tx.now < ((run.waiting and run.waiting.time) or 0):
            continue
        waiting = Waiting(
            WaitingFor.WORKER,
            ", ".join(found),
            time=round(tx.now - unattended[found[0]] * SECOND),
        )
        gate.record_waiting(tx, runs.lock_run(tx, run.id), waiting)


def _list_next_sites(context: WorkflowContext, run: Run) -> set[str]:
    """Return the sites whose workers have to advance the run next."""
    waits = run.state is State.QUEUED or (run.state is State.PLANNING and run.parent is None)
    if not waits or (run.hosts and run.state is State.QUEUED):
        return set()
    try:
        known = context.policies.get_policy().inventory.hosts
    except NoPolicyError:
        return set()
    return {known[host].site for host in run.hosts or (run.host,) if host in known}
