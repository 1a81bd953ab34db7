"""Every system call in turn is the last: of a run, none is a bad moment for kill -9.

strace kills the process as a thread of it is about to make its Nth call of a kind, for N = 1, 2 …
until none of its threads comes so far and the run ends untouched. `make chaos` sweeps.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.chaos.report import NAME, Record
from tests.chaos.test_kills import counted
from tests.chaos.tracing import live
from tests.chaos.victim import Home
from tests.playground.fleet import LoopbackFleet, Place
from tests.policies import a_policy

CHAOS = int(os.environ.get("KEYTURN_CHAOS", "0"))
# What makes something durable, what goes to the host, and what opens the way there.
CALLS = ("fdatasync", "pwrite64", "sendto", "connect", "unlink")
# More than any thread of one run makes: a sweep that comes so far has not come to its end.
MOST = 1000
KILLED = -9
PATIENCE = 60


@pytest.fixture
def home(tmp_path: Path) -> Generator[tuple[Home, LoopbackFleet]]:
    a_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy", places=(Place("lb1", "edge"),)) as fleet:
        yield Home(tmp_path, f"sqlite:///{tmp_path / 'keyturn.db'}"), fleet


def swept(home: Home, call: str, *, most: int, seed: int = 0, settled: bool = False) -> int:
    """Kill at each call of a kind; return how many there were.

    seed: another one asks for other things. settled: what was left is done before the next kill.
    """
    for n in range(1, most + 1):
        if settled:
            assert live(home, seed + most + n, patience=PATIENCE) == 0
        inject = ("-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={n}")
        status = live(home, seed + n, patience=PATIENCE, strace=("-o", "/dev/null", *inject))
        assert status in {0, KILLED}, f"{call} {n}: it ended with {status}"
        if status == 0:
            return n - 1
    return most


@pytest.mark.real
@pytest.mark.skipif(not CHAOS, reason="make chaos sweeps")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_lost_when_a_process_is_killed_at_any_system_call(
    home: tuple[Home, LoopbackFleet], call: str, record_property: Record
):
    # First a database is made, and each life finds what all before it have left: its calls are
    # many others than those of a run. Then it is one run that is killed at each of them.
    heaped = swept(home[0], call, most=MOST)
    kills = heaped, swept(home[0], call, most=MOST, seed=MOST, settled=True)
    assert max(kills) < MOST
    assert live(home[0], 0, patience=PATIENCE) == 0
    toll = counted(*home, faults=sum(kills))
    record_property(NAME, f"kill -9 at every {call} of a run: {toll}")
    assert not toll.wrong, f"{call}: {toll}: {toll.wrong}"
