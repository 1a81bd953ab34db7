"""kill -9 within a part of a rebuild: the next part waits until its outcome is known."""

from contextlib import closing
from pathlib import Path

import pytest

from bot.db import runs
from bot.model.run import Run, State
from bot.model.waiting import Waiting, WaitingFor
from tests.chaos import killable_service
from tests.chaos.killable_service import ServiceDirectory
from tests.playground.fleet import LoopbackFleet, Place
from tests.playground.probation import wait_until
from tests.policies import write_policy
from tests.processes import get_fork_context

PLACES = (Place("lb1", "edge"), Place("lb2", "edge"))
NAMES = ("one", "two")
# Two runs keep the notes on the first host, the third is the rebuild, and then come its parts.
REBUILD, PARTS = 3, (4, 5)


@pytest.mark.real
@pytest.mark.parametrize(
    ("moment", "before"),
    [
        # The host writes while no one listens, and ends later.
        ("write", "held"),
        # The part has written; what is left is to verify it.
        ("read", "wrote one\nheld"),
    ],
)
def test_rebuild_goes_on_after_a_part_that_a_kill_left_with_an_unknown_outcome(
    tmp_path: Path, moment: str, before: str
):
    write_policy(tmp_path / "policy")
    directory = ServiceDirectory(tmp_path, f"sqlite:///{tmp_path / 'keyturn.db'}")
    processes = get_fork_context()
    with LoopbackFleet(tmp_path / "policy", places=PLACES) as fleet:
        home = fleet.hosts["lb2"].home
        hold, log = home / "hold", home / "log"
        hold.write_text(f"{moment}\n")
        killed = processes.Process(target=killable_service.rebuild_notes, args=(directory, NAMES))
        killed.start()
        wait_until(lambda: log.exists() and log.read_text() == f"{before}\n", seconds=60)
        killed.kill()
        killed.join()
        second = processes.Process(target=killable_service.complete_all_runs, args=(directory,))
        second.start()
        wait_until(lambda: _read_runs(directory)[1].state is State.UNKNOWN)
        wait_until(lambda: _read_runs(directory)[0].waiting is not None)
        rebuild, first_part, second_part = _read_runs(directory)
        assert (rebuild.state, first_part.state) == (State.RUNNING, State.UNKNOWN)
        assert rebuild.waiting == Waiting(WaitingFor.OUTCOME, first_part.title)
        assert second_part.state is State.PENDING
        hold.unlink()
        second.join(60)
        assert second.exitcode == 0
        assert [run.state for run in _read_runs(directory)] == [State.SUCCEEDED] * 3
        wrote = [line for line in log.read_text().splitlines() if line != "held"]
        assert wrote == [f"wrote {name}" for name in NAMES]


def _read_runs(directory: ServiceDirectory) -> list[Run]:
    """Return the rebuild and its parts."""
    with closing(directory.open_database()) as database, database.reading() as tx:
        return [runs.get_run(tx, number) for number in (REBUILD, *PARTS)]
