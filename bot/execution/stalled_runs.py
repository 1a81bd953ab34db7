"""Unattended: whoever waits at a site for which no worker takes anything is told so."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from bot.db import break_glass, locks, priority, procrastinate_queue, runs
from bot.db.database import Transaction
from bot.execution import gate
from bot.model.run import Run, State
from bot.model.run_states import ON_HOLD
from bot.policy import NoPolicy, Policy
from bot.workflow.context import WorkflowContext

_FROZEN = f"{ON_HOLD.label}: "


def list_stalled_runs(
    parts: WorkflowContext, tx: Transaction, moving: Sequence[Run], taken: Collection[int]
) -> list[Run]:
    """Return those of *moving* that are to be put to work. taken: those that somebody is at.

    Who waits for a host is woken by whoever gives it up, and the first of them where nobody has
    it. Who waits for the end of a freeze, and has said so, is left alone until then.
    """
    busy = {*parts.dispatch.busy(tx), *taken}
    found = [run for run in moving if run.id not in busy and _needs_no_host(run)]
    frozen = _Frozen(parts, tx)
    for line in _lines(tx, moving):
        awake = [run for run in line if not frozen.holds(run)]
        found += [run for run in awake if frozen.held(run) and run.id not in busy]
        if awake and busy.isdisjoint(run.id for run in line):
            first = priority.order_runs(tx, [run.id for run in awake])[0]
            found += [run for run in awake if run.id == first and not frozen.held(run)]
    return found


def _needs_no_host(run: Run) -> bool:
    ready = run.state is State.READY and run.timing is not None
    return bool(run.hosts) or run.state is State.ASKED or ready


def _lines(tx: Transaction, moving: Sequence[Run]) -> list[list[Run]]:
    """Return who waits for each host that nobody has."""
    locked = {lock.target for lock in locks.list_locks(tx)}
    lines: dict[str, list[Run]] = {}
    for run in moving:
        if run.state is State.READY and run.host not in locked and not _needs_no_host(run):
            lines.setdefault(run.host, []).append(run)
    return [*lines.values()]


class _Frozen:
    """Who waits for the end of a freeze. Thousands may, so each freeze is looked up once."""

    def __init__(self, parts: WorkflowContext, tx: Transaction) -> None:
        self._policy, self._now = _policy(parts), tx.now
        self._open = break_glass.list_active(tx)
        self._known: dict[tuple[str, str], str] = {}

    def held(self, run: Run) -> bool:
        """Say whether it was told of as waiting for that."""
        return run.summary.startswith(_FROZEN)

    def holds(self, run: Run) -> bool:
        """Say whether it waits for nothing else, and was told of as just that."""
        if self._policy is None or run.id in self._open or not self.held(run):
            return False
        place = (run.host, run.words)
        if place not in self._known:
            words = {"host": run.host, "runbook": run.words}
            self._known[place] = self._policy.frozen(**words, now=self._now)
        return run.summary == f"{_FROZEN}{self._known[place]}"


def _policy(parts: WorkflowContext) -> Policy | None:
    try:
        return parts.policies.current()
    except NoPolicy:
        return None


# Workers that are free look every second: what has waited so long is seen by none.
_SECONDS = 15.0
_SAYS = "waits: no worker of "


def log_unattended(parts: WorkflowContext, tx: Transaction, moving: Sequence[Run]) -> None:
    """Say once of each of these runs that no worker of its site has been heard of, if that is so.

    On PostgreSQL only: elsewhere there are no workers. A part of a request is told of with the
    whole, until its own turn has come.
    """
    alone = {
        one.site: one.seconds
        for one in procrastinate_queue.list_unattended_sites(tx, seconds=_SECONDS)
    }
    if not alone:
        return
    for run in moving:
        found = sorted(alone.keys() & _sites(parts, run))
        if not found or run.summary.startswith(_SAYS):
            continue
        since = datetime.fromtimestamp(tx.now / 1_000_000 - alone[found[0]], UTC)
        sites = f"site{'s' * (len(found) > 1)} {', '.join(found)}"
        why = f"{_SAYS}{sites} has been heard of since {since:%H:%M} UTC"
        gate.log_waiting(tx, runs.lock_run(tx, run.id), why)


def _sites(parts: WorkflowContext, run: Run) -> set[str]:
    """Return the sites whose workers are to take this up next."""
    waits = run.state is State.READY or (run.state is State.ASKED and run.parent is None)
    if not waits or (run.hosts and run.state is State.READY):
        return set()
    try:
        known = parts.policies.current().inventory.hosts
    except NoPolicy:
        return set()
    return {known[host].site for host in run.hosts or (run.host,) if host in known}
