"""Find runs that no one is working on, and report sites without a worker."""

from collections.abc import Collection, Sequence

from bot.db import break_glass, locks, priority, procrastinate_queue, runs
from bot.db.database import Transaction
from bot.execution import gate
from bot.model.run import Run, State
from bot.model.run_states import ON_HOLD_DISPLAY
from bot.model.times import SECOND, format_deadline
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext

_FREEZE_PREFIX = f"{ON_HOLD_DISPLAY.label}: "


def list_stalled_runs(
    context: WorkflowContext,
    tx: Transaction,
    active_runs: Sequence[Run],
    being_read: Collection[int],
) -> list[Run]:
    """Return the runs of *active_runs* to wake. being_read: runs that a thread works on.

    For each host without a lock, the first waiting run is woken. Runs that wait for the end of a
    freeze are left alone until then.
    """
    busy = {*context.dispatcher.list_dispatched_runs(tx), *being_read}
    found = [run for run in active_runs if run.id not in busy and _needs_no_host(run)]
    frozen = _FreezeCheck(context, tx)
    for line in _group_by_free_host(tx, active_runs):
        awake = [run for run in line if not frozen.is_held_by_freeze(run)]
        found += [run for run in awake if frozen.was_held_by_freeze(run) and run.id not in busy]
        if awake and busy.isdisjoint(run.id for run in line):
            first = priority.order_runs(tx, [run.id for run in awake])[0]
            found += [
                run for run in awake if run.id == first and not frozen.was_held_by_freeze(run)
            ]
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


class _FreezeCheck:
    """Whether runs wait for a freeze. There may be thousands, so each freeze is read once."""

    def __init__(self, context: WorkflowContext, tx: Transaction) -> None:
        self._policy, self._now = _get_policy(context), tx.now
        self._break_glass_runs = break_glass.list_active(tx)
        self._freezes: dict[tuple[str, str], str] = {}

    def was_held_by_freeze(self, run: Run) -> bool:
        """Return whether the run was last reported as held by a freeze."""
        return run.summary.startswith(_FREEZE_PREFIX)

    def is_held_by_freeze(self, run: Run) -> bool:
        """Return whether the run is still held by the freeze that was reported."""
        if (
            self._policy is None
            or run.id in self._break_glass_runs
            or not self.was_held_by_freeze(run)
        ):
            return False
        place = (run.host, run.runbook)
        if place not in self._freezes:
            words = {"host": run.host, "runbook": run.runbook}
            self._freezes[place] = self._policy.describe_freeze(**words, now=self._now)
        return run.summary == f"{_FREEZE_PREFIX}{self._freezes[place]}"


def _get_policy(context: WorkflowContext) -> Policy | None:
    try:
        return context.policies.get_policy()
    except NoPolicyError:
        return None


# Free workers poll every second: a run that has waited so long has no worker.
_UNATTENDED_SECONDS = 15.0
_UNATTENDED_PREFIX = "waits for a worker: no heartbeat from "


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
        if not found or run.summary.startswith(_UNATTENDED_PREFIX):
            continue
        since = format_deadline(tx.now - unattended[found[0]] * SECOND)
        sites = f"site{'s' * (len(found) > 1)} {', '.join(found)}"
        why = f"{_UNATTENDED_PREFIX}{sites} since {since}"
        gate.record_waiting_reason(tx, runs.lock_run(tx, run.id), why)


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
