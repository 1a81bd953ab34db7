"""kill -9 at each system call of a run in turn: nothing is lost and nothing is done twice.

strace kills the process when one of its threads is about to make its Nth call of a system call,
for N = 1, 2 … until no thread makes so many and the run ends. Only `make chaos` does it.
"""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.campaigns import CHAOS
from tests.chaos.killable_service import ServiceDirectory, collect_result
from tests.chaos.report import NAME, Record
from tests.chaos.traced_service import complete_one_run
from tests.playground.fleet import LoopbackFleet, Place
from tests.policies import write_policy

# Calls that make writes durable, that connect to the host, and that send to it.
CALLS = ("fdatasync", "pwrite64", "sendto", "connect", "unlink")
# More than any thread of one run makes.
MAX_CALLS = 1000
KILLED = -9
PATIENCE = 60


@pytest.fixture
def service_and_fleet(tmp_path: Path) -> Generator[tuple[ServiceDirectory, LoopbackFleet]]:
    write_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy", places=(Place("lb1", "edge"),)) as fleet:
        yield ServiceDirectory(tmp_path, f"sqlite:///{tmp_path / 'keyturn.db'}"), fleet


def _kill_at_each_call(
    directory: ServiceDirectory, call: str, *, seed: int = 0, complete_between: bool = False
) -> int:
    """Kill the process at each of its calls in turn; return how many there were.

    seed: must differ between two rounds on the same directory. complete_between: complete all runs
    before the next kill.
    """
    for n in range(1, MAX_CALLS + 1):
        if complete_between:
            assert complete_one_run(directory, seed + MAX_CALLS + n, patience=PATIENCE) == 0
        inject = ("-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={n}")
        options = ("-o", "/dev/null", *inject)
        status = complete_one_run(directory, seed + n, patience=PATIENCE, strace=options)
        assert status in {0, KILLED}, f"{call} {n}: it ended with {status}"
        if status == 0:
            return n - 1
    return MAX_CALLS


@pytest.mark.real
@pytest.mark.skipif(not CHAOS, reason="make chaos tries every call")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("call", CALLS)
def test_no_run_is_lost_when_a_process_is_killed_at_any_system_call(
    service_and_fleet: tuple[ServiceDirectory, LoopbackFleet], call: str, record_property: Record
):
    directory, fleet = service_and_fleet
    # In the first round the database is created, and each process recovers the runs that all
    # before it have left. In the second round each process has one run only.
    kills = (
        _kill_at_each_call(directory, call),
        _kill_at_each_call(directory, call, seed=MAX_CALLS, complete_between=True),
    )
    assert max(kills) < MAX_CALLS
    assert complete_one_run(directory, 0, patience=PATIENCE) == 0
    result = collect_result(directory, fleet, faults=sum(kills))
    record_property(NAME, f"kill -9 at every {call} of a run: {result}")
    assert not result.violations, f"{call}: {result}: {result.violations}"
