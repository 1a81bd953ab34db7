"""Rolling restarts under load: whoever is asked to end takes nothing more, and leaves nothing.

KEYTURN_CHAOS=1000 restarts 20 processes, one after the other (`make chaos`), `make test` two.
"""

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bot.audit import change_log
from bot.db.database import Transaction
from bot.model.run import State
from tests.chaos.crowd import Crowd, People
from tests.chaos.report import NAME, Record
from tests.playground.postgres import Postgres

CHAOS = int(os.environ.get("KEYTURN_CHAOS", "0"))
EACH = 2
RESTARTS = CHAOS // 50 or 2
# What orchestrators are told to wait, and what is expected of us, in seconds.
LONGEST, AT_ONCE = 30.0, 1.0
_SECOND = 1_000_000
_TAKES = frozenset({"claimed", "resumed"})


class Restarts:
    """terminated_at: when each process was sent SIGTERM, by its number. took: its seconds."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self.terminated_at: dict[int, float] = {}
        self.took: list[float] = []

    def roll(self, n: int) -> None:
        """Ask one to end, wait for that, and have another start in its place.

        One that serves and one that works take turns.
        """
        place = n % 2 * EACH + n // 2 % EACH
        member = self._crowd.members[place]
        process = member.process
        assert process.pid
        began = time.monotonic()
        self.terminated_at[process.pid] = time.time()
        process.terminate()
        process.join(LONGEST)
        self.took.append(time.monotonic() - began)
        # What serves ends by the signal once it has ended all else.
        assert process.exitcode in {0, -15}, f"{process.exitcode}: {member.output()[-2000:]}"
        self._crowd.revive()
        deadline = time.monotonic() + 2 * LONGEST
        # One that finds a database that is too busy ends, and is started again.
        while not self._crowd.members[place].working:
            assert time.monotonic() < deadline, self._crowd.members[place].output()[-2000:]
            self._crowd.revive()
            time.sleep(0.05)

    def late(self) -> list[str]:
        """Return what somebody took who had been asked to end before that."""
        database = self._crowd.database()
        with database.reading() as tx:
            taken = [each for each in _all(tx) if each.kind in _TAKES]
        database.close()
        late_runs: list[str] = []
        for entry in taken:
            pid = int(str(entry.facts["worker"]).split()[1])
            late = entry.at / _SECOND - self.terminated_at.get(pid, float("inf"))
            if late > AT_ONCE:
                late_runs.append(f"run {entry.run} was taken {late:.1f} s after SIGTERM")
        return late_runs


@pytest.mark.real
@pytest.mark.timeout(0 if CHAOS else 300)
def test_rolling_restarts_under_load_lose_nothing(tmp_path: Path, record_property: Record):
    with ExitStack() as stack:
        server = stack.enter_context(Postgres())
        crowd = Crowd(tmp_path, server.new_database(), serving=EACH, workers=EACH)
        stack.enter_context(crowd)
        people, restarts = People(crowd), Restarts(crowd)
        with people:
            for n in range(RESTARTS):
                restarts.roll(n)
            crowd.all_work()
        toll = crowd.counted(people, faults=RESTARTS)
        late, unknown = restarts.late(), _unknown(crowd)
    slowest = max(restarts.took)
    record_property(
        NAME,
        f"rolling restarts: {toll}; the slowest ended in {slowest:.1f} s; {unknown} unknown",
    )
    assert not toll.wrong, f"{toll}: {toll.wrong}"
    assert not late
    assert not unknown
    assert slowest < LONGEST
    assert toll.ends[State.SUCCEEDED]


def _all(tx: Transaction) -> list[change_log.Entry]:
    return change_log.list_entries_after(tx, 0, limit=10_000_000)


def _unknown(crowd: Crowd) -> int:
    """Return how many runs were unknown at any time: a step is short here, and is finished."""
    database = crowd.database()
    with database.reading() as tx:
        unknown = sum(each.kind == State.UNKNOWN.value for each in _all(tx))
    database.close()
    return unknown
