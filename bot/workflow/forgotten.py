"""Forgotten: runs that could go on and that nobody works on, since a wake-up was lost."""

from collections.abc import Collection, Sequence

from bot.policy import NoPolicy, Policy
from bot.run import Run, State
from bot.store import glass, locks, turns
from bot.store.database import Transaction
from bot.workflow.parts import Parts

_FROZEN = "waits: "


def among(
    parts: Parts, tx: Transaction, moving: Sequence[Run], taken: Collection[int]
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
            first = turns.in_order(tx, [run.id for run in awake])[0]
            found += [run for run in awake if run.id == first and not frozen.held(run)]
    return found


def _needs_no_host(run: Run) -> bool:
    ready = run.state is State.READY and run.timing is not None
    return bool(run.hosts) or run.state is State.ASKED or ready


def _lines(tx: Transaction, moving: Sequence[Run]) -> list[list[Run]]:
    """Return who waits for each host that nobody has."""
    locked = {lock.target for lock in locks.every(tx)}
    lines: dict[str, list[Run]] = {}
    for run in moving:
        if run.state is State.READY and run.host not in locked and not _needs_no_host(run):
            lines.setdefault(run.host, []).append(run)
    return [*lines.values()]


class _Frozen:
    """Who waits for the end of a freeze. Thousands may, so each freeze is looked up once."""

    def __init__(self, parts: Parts, tx: Transaction) -> None:
        self._policy, self._now = _policy(parts), tx.now
        self._open = glass.open_now(tx)
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


def _policy(parts: Parts) -> Policy | None:
    try:
        return parts.policies.current()
    except NoPolicy:
        return None
