"""The answer to a commit is lost, at each commit of a run in turn: the commit is there, or is not.

Nobody may believe that what has no answer did not happen, nor that it did. `make test` loses the
answer to every third one, `make chaos` to each of them several times.
"""

import os
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from bot.db.database import StoreUnavailable
from bot.model.errors import TooLate
from bot.model.run import State
from tests.chaos.report import NAME, Record
from tests.chaos.test_kills import counted
from tests.chaos.victim import Home, Victim
from tests.playground.cutter import Cutter
from tests.playground.fleet import LoopbackFleet, Place
from tests.playground.postgres import Postgres
from tests.policies import a_policy
from tests.processes import get_fork_context

CHAOS = int(os.environ.get("KEYTURN_CHAOS", "0"))
STRIDE, ROUNDS = (1, max(1, CHAOS // 200)) if CHAOS else (3, 1)
# More than one run has: a sweep that comes so far has not come to its end.
MOST = 200
# Until what seems to be forgotten is looked for, as the clock of a process does.
_FORGOTTEN_SECONDS, _PATIENCE = 0.5, 60.0


class OneByOne(Victim):
    """Has one run done after the other, and commits nothing but what belongs to them."""

    def see_through(self, deadline: float) -> None:
        """Bring a run of one's own to its end, and whatever else is there."""
        self._trying(lambda: self._ask(self._hosts[0]), deadline)
        moved, before = time.monotonic(), ""
        while True:
            assert time.monotonic() < deadline, before
            now: list[str] = []
            with suppress(StoreUnavailable, TooLate):
                unfinished = self._unfinished()
                if not unfinished:
                    return
                now = [f"{run.id} {run.state}" for run in unfinished]
                for run in unfinished:
                    if run.state is State.PENDING:
                        self._service.approve_run(run.id, person="olga", digest=run.digest)
            if str(now) != before:
                moved, before = time.monotonic(), str(now)
            if time.monotonic() - moved > _FORGOTTEN_SECONDS:
                with suppress(StoreUnavailable):
                    self._service.wake_stalled_runs()
                moved = time.monotonic()
            time.sleep(0.01)

    def _trying(self, ask: Callable[[], None], deadline: float) -> None:
        while time.monotonic() < deadline:
            # Who is told that it could not be recorded asks again.
            with suppress(StoreUnavailable):
                ask()
                return


def sweep(home: Home, port: int, stride: int, command: Connection) -> None:
    """Lose the answer to every stride-th commit of a run, one in each; say how many there were."""
    with Cutter(port) as cutter:
        # What is said is looked at on its way.
        url = make_url(home.url).set(host="127.0.0.1", port=cutter.port)
        url = url.update_query_dict({"sslmode": "disable"})
        seed = os.getpid()  # no round asks for what another has asked for
        victim = OneByOne(Home(home.directory, url.render_as_string(hide_password=False)), seed)
        victim.start()
        for n in range(1, MOST, stride):
            cutter.cut(n)
            victim.see_through(time.monotonic() + _PATIENCE)
            if cutter.let_be():
                break
        command.send(cutter.cuts)
    # Its connections go with it.
    os._exit(0)


@pytest.fixture
def place(tmp_path: Path) -> Generator[tuple[Home, LoopbackFleet, int]]:
    a_policy(tmp_path / "policy")
    with ExitStack() as stack:
        server = stack.enter_context(Postgres())
        fleet = LoopbackFleet(tmp_path / "policy", places=(Place("lb1", "edge"),))
        stack.enter_context(fleet)
        home = Home(tmp_path, server.new_database())
        port = make_url(home.url).port
        assert port
        yield home, fleet, port


@pytest.mark.real
@pytest.mark.timeout(0 if CHAOS else 300)
def test_a_commit_is_done_once_when_its_answer_is_lost(
    place: tuple[Home, LoopbackFleet, int], record_property: Record
):
    home, fleet, port = place
    processes = get_fork_context()
    cuts = 0
    for _ in range(ROUNDS):
        here, there = processes.Pipe(duplex=False)
        process = processes.Process(target=sweep, args=(home, port, STRIDE, there))
        process.start()
        there.close()
        process.join()
        assert process.exitcode == 0
        cuts += int(here.recv())
    toll = counted(home, fleet, faults=cuts)
    record_property(NAME, f"lost answers to commits: {toll}")
    assert not toll.wrong, f"{toll}: {toll.wrong}"
    # Asked, planned, approved, begun, two steps with intent and end each, proven.
    assert cuts >= ROUNDS * 9 // STRIDE
