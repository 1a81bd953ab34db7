"""Unattended: whoever waits at a site for which no worker takes anything is told so."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from bot.db import break_glass, locks, priority, procrastinate_queue, runs
from bot.db.database import Transaction
from bot.execution import gate
from bot.model.run import Run, State
from bot.model.run_states import ON_HOLD_DISPLAY
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext

_FREEZE_PREFIX = f"{ON_HOLD_DISPLAY.label}: "


def list_stalled_runs(
    context: WorkflowContext,
    tx: Transaction,
    active_runs: Sequence[Run],
    being_read: Collection[int],
) -> list[Run]:
    """Return those of *moving* that are to be put to work. taken: those that somebody is at.

    Who waits for a host is woken by whoever gives it up, and the first of them where nobody has
    it. Who waits for the end of a freeze, and has said so, is left alone until then.
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
    """Return who waits for each host that nobody has."""
    locked = {lock.target for lock in locks.list_locks(tx)}
    lines: dict[str, list[Run]] = {}
    for run in active_runs:
        if run.state is State.QUEUED and run.host not in locked and not _needs_no_host(run):
            lines.setdefault(run.host, []).append(run)
    return [*lines.values()]


class _FreezeCheck:
    """Who waits for the end of a freeze. Thousands may, so each freeze is looked up once."""

    def __init__(self, context: WorkflowContext, tx: Transaction) -> None:
        self._policy, self._now = _get_policy(context), tx.now
        self._break_glass_runs = break_glass.list_active(tx)
        self._freezes: dict[tuple[str, str], str] = {}

    def was_held_by_freeze(self, run: Run) -> bool:
        """Say whether it was told of as waiting for that."""
        return run.summary.startswith(_FREEZE_PREFIX)

    def is_held_by_freeze(self, run: Run) -> bool:
        """Say whether it waits for nothing else, and was told of as just that."""
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


# Workers that are free look every second: what has waited so long is seen by none.
_UNATTENDED_SECONDS = 15.0
_UNATTENDED_PREFIX = "waits: no worker of "


def record_unattended_sites(
    context: WorkflowContext, tx: Transaction, active_runs: Sequence[Run]
) -> None:
    """Say once of each of these runs that no worker of its site has been heard of, if that is so.

    On PostgreSQL only: elsewhere there are no workers. A part of a request is told of with the
    whole, until its own turn has come.
    """
    alone = {
        one.site: one.seconds
        for one in procrastinate_queue.list_unattended_sites(tx, seconds=_UNATTENDED_SECONDS)
    }
    if not alone:
        return
    for run in active_runs:
        found = sorted(alone.keys() & _list_next_sites(context, run))
        if not found or run.summary.startswith(_UNATTENDED_PREFIX):
            continue
        since = datetime.fromtimestamp(tx.now / 1_000_000 - alone[found[0]], UTC)
        sites = f"site{'s' * (len(found) > 1)} {', '.join(found)}"
        why = f"{_UNATTENDED_PREFIX}{sites} has been heard of since {since:%H:%M} UTC"
        gate.record_waiting_reason(tx, runs.lock_run(tx, run.id), why)


def _list_next_sites(context: WorkflowContext, run: Run) -> set[str]:
    """Return the sites whose workers are to take this up next."""
    waits = run.state is State.QUEUED or (run.state is State.PLANNING and run.parent is None)
    if not waits or (run.hosts and run.state is State.QUEUED):
        return set()
    try:
        known = context.policies.get_policy().inventory.hosts
    except NoPolicyError:
        return set()
    return {known[host].site for host in run.hosts or (run.host,) if host in known}
