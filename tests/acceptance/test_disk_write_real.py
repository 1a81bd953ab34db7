"""The trial of a disk and this machine behind a real sshd."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from connectors import disk_write
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.sessions import Sessions
from connectors.trouble import CommandFailed
from runbooks import NoUndo
from runbooks.disk_write_test import Found, TryDiskWrite
from tests.plans import work_of
from tests.playground.sshd import Sshd

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has directories of root's"),
]


@pytest.fixture
def directory() -> Iterator[Path]:
    """Make a directory on a disk; pytest's own may be in memory, and lie below other people's."""
    made = Path(tempfile.mkdtemp(prefix="kt-write-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def fleet(sshd: Sshd) -> Iterator[Fleet]:
    entry = sshd.inventory_entry(area="storage")
    fleet = Fleet(Inventory.model_validate({"hosts": {"nas1": entry}}), Sessions(Path("/")))
    yield fleet
    fleet.close()


def on_a_calm_host(found: Found) -> Found:
    """Say that the host is calm: where tests run, it need not be."""
    return replace(found, place=replace(found.place, load=0.0, waited=0.0))


def test_a_disk_is_tried_and_nothing_is_left_but_the_result(fleet: Fleet, directory: Path):
    values = {"host": "nas1", "directory": str(directory), "mib": 8}
    change = TryDiskWrite.model_validate(values)
    plan = change.plan(on_a_calm_host(change.read(fleet.ask)))
    (step,) = plan.steps
    assert "copied" in fleet.tell("nas1", fleet.resolve("nas1", step.do)).out
    assert list(directory.iterdir()) == []
    proof = change.plan(change.read(fleet.ask))
    assert not proof.steps
    assert proof.because.startswith(f"8 MiB were written to {directory} in ")
    assert not isinstance(step.undo, NoUndo)
    fleet.tell("nas1", fleet.resolve("nas1", step.undo))
    assert work_of(change.plan(on_a_calm_host(change.read(fleet.ask)))) == work_of(plan)


def test_a_directory_that_others_may_write_to_is_refused_by_the_host_as_well(
    fleet: Fleet, directory: Path
):
    directory.chmod(0o777)
    assert not fleet.ask("nas1", disk_write.place(str(directory))).of_root
    with pytest.raises(CommandFailed, match="others than root may write"):
        fleet.tell("nas1", disk_write.write(str(directory), mib=4, seconds=30))
    assert list(directory.iterdir()) == []


def test_a_file_system_that_fills_up_is_said_to_and_emptied_again(fleet: Fleet, directory: Path):
    image = directory / "image"
    subprocess.run(["truncate", "-s", "8M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mounted = directory / "disk"
    mounted.mkdir()
    done = subprocess.run(["mount", "-o", "loop", image, mounted], check=False)
    if done.returncode:
        pytest.skip("no loop device can be mounted here")
    try:
        with pytest.raises(CommandFailed, match="the file system has no room for it"):
            fleet.tell("nas1", disk_write.write(str(mounted), mib=64, seconds=30))
        assert [each.name for each in mounted.iterdir()] == ["lost+found"]
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_a_directory_that_is_not_there_is_said_to_be(fleet: Fleet, directory: Path):
    with pytest.raises(CommandFailed, match="no such directory"):
        fleet.ask("nas1", disk_write.place(f"{directory}/none"))
