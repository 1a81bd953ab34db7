"""Rolling restarts under load: a process takes no run after SIGTERM, and leaves none unfinished.

`make chaos` with KEYTURN_CHAOS=1000 restarts 20 processes one after the other, `make test` two.
"""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bot.audit import change_log
from bot.db.database import Transaction
from bot.model.run import State
from tests.campaigns import CHAOS
from tests.chaos.report import NAME, Record
from tests.chaos.service_group import Requesters, ServiceGroup
from tests.playground.postgres import Postgres

# Of servers, and of workers.
SIZE = 2
RESTARTS = CHAOS // 50 or 2
# Seconds after SIGTERM in which a process ends, and after which it takes no run any more.
MAX_STOP_SECONDS, MAX_TAKE_SECONDS = 30.0, 1.0
_SECOND = 1_000_000
_TAKING_KINDS = frozenset({"claimed", "resumed"})


class RollingRestart:
    """terminated_at: when each process was sent SIGTERM, by process id. durations: in seconds."""

    def __init__(self, group: ServiceGroup) -> None:
        self._group = group
        self.terminated_at: dict[int, float] = {}
        self.durations: list[float] = []

    def restart(self, n: int) -> None:
        """Terminate a process and start another in its place: servers and workers in turn."""
        place = n % 2 * SIZE + n // 2 % SIZE
        old = self._group.processes[place]
        process = old.process
        assert process.pid
        start = time.monotonic()
        self.terminated_at[process.pid] = time.time()
        process.terminate()
        process.join(MAX_STOP_SECONDS)
        self.durations.append(time.monotonic() - start)
        # A server ends by the signal once it has stopped everything else.
        assert process.exitcode in {0, -15}, f"{process.exitcode}: {old.get_output()[-2000:]}"
        self._group.restart_ended()
        deadline = time.monotonic() + 2 * MAX_STOP_SECONDS
        # A process that finds the database too busy ends, and is started again.
        while not self._group.processes[place].is_ready:
            output = self._group.processes[place].get_output()
            assert time.monotonic() < deadline, output[-2000:]
            self._group.restart_ended()
            time.sleep(0.05)

    def list_late_runs(self) -> list[str]:
        """Return a description of each run that a process took after its SIGTERM."""
        database = self._group.open_database()
        with database.reading() as tx:
            taken = [entry for entry in _list_entries(tx) if entry.kind in _TAKING_KINDS]
        database.close()
        late_runs: list[str] = []
        for entry in taken:
            pid = int(str(entry.facts["worker"]).split()[1])
            delay = entry.at / _SECOND - self.terminated_at.get(pid, float("inf"))
            if delay > MAX_TAKE_SECONDS:
                late_runs.append(f"run {entry.run} was taken {delay:.1f} s after SIGTERM")
        return late_runs


@pytest.mark.real
@pytest.mark.timeout(0 if CHAOS else 300)
def test_rolling_restarts_under_load_lose_no_run(tmp_path: Path, record_property: Record):
    with ExitStack() as stack:
        server = stack.enter_context(Postgres())
        group = ServiceGroup(tmp_path, server.new_database(), servers=SIZE, workers=SIZE)
        stack.enter_context(group)
        requesters, rolling = Requesters(group), RollingRestart(group)
        with requesters:
            for n in range(RESTARTS):
                rolling.restart(n)
            group.wait_until_all_work()
        result = group.collect_result(requesters, faults=RESTARTS)
        late_runs, unknown_count = rolling.list_late_runs(), _count_unknown_runs(group)
    slowest = max(rolling.durations)
    record_property(
        NAME,
        f"rolling restarts: {result}; the slowest ended in {slowest:.1f} s; "
        f"{unknown_count} unknown",
    )
    assert not result.violations, f"{result}: {result.violations}"
    assert not late_runs
    assert not unknown_count
    assert slowest < MAX_STOP_SECONDS
    assert result.run_counts[State.SUCCEEDED]


def _list_entries(tx: Transaction) -> list[change_log.Entry]:
    return change_log.list_entries_after(tx, 0, limit=10_000_000)


def _count_unknown_runs(group: ServiceGroup) -> int:
    """Count the runs that were unknown at any time: none, as each step ends before its process."""
    database = group.open_database()
    with database.reading() as tx:
        count = sum(entry.kind == State.UNKNOWN.value for entry in _list_entries(tx))
    database.close()
    return count
