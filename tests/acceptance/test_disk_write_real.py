"""The disk write test on this machine, over a real sshd."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from connectors import disk_write
from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks import NoUndo
from runbooks.disk_write_test import DirectoryReading, MeasureDiskWrite
from tests.plans import list_work
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
    fleet = Fleet(Inventory.model_validate({"hosts": {"nas1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def set_low_load(reading: DirectoryReading) -> DirectoryReading:
    """Say that the host is calm: where tests run, it need not be."""
    return replace(reading, directory=replace(reading.directory, load=0.0, io_wait=0.0))


def test_disk_write_test_leaves_nothing_but_its_result(fleet: Fleet, directory: Path):
    values = {"host": "nas1", "directory": str(directory), "mib": 8}
    change = MeasureDiskWrite.model_validate(values)
    plan = change.plan(set_low_load(change.read(fleet.run_query)))
    (step,) = plan.steps
    assert "copied" in fleet.run_command("nas1", fleet.resolve_command("nas1", step.do)).out
    assert list(directory.iterdir()) == []
    proof = change.plan(change.read(fleet.run_query))
    assert not proof.steps
    assert proof.current_state.startswith(f"wrote 8 MiB to {directory} in ")
    assert not isinstance(step.undo, NoUndo)
    fleet.run_command("nas1", fleet.resolve_command("nas1", step.undo))
    assert list_work(change.plan(set_low_load(change.read(fleet.run_query)))) == list_work(plan)


def test_disk_write_test_in_a_directory_writable_by_others_is_refused(
    fleet: Fleet, directory: Path
):
    directory.chmod(0o777)
    assert not fleet.run_query("nas1", disk_write.query_directory(str(directory))).is_root_owned
    with pytest.raises(CommandError, match="others than root can write"):
        fleet.run_command("nas1", disk_write.write_test_file(str(directory), mib=4, seconds=30))
    assert list(directory.iterdir()) == []


def test_disk_write_test_on_a_full_file_system_is_reported_and_cleaned_up(
    fleet: Fleet, directory: Path
):
    image = directory / "image"
    subprocess.run(["truncate", "-s", "8M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mounted = directory / "disk"
    mounted.mkdir()
    done = subprocess.run(["mount", "-o", "loop", image, mounted], check=False)
    if done.returncode:
        pytest.skip("no loop device can be mounted here")
    try:
        with pytest.raises(CommandError, match="too little free space"):
            fleet.run_command("nas1", disk_write.write_test_file(str(mounted), mib=64, seconds=30))
        assert [each.name for each in mounted.iterdir()] == ["lost+found"]
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_disk_write_test_in_a_missing_directory_is_reported(fleet: Fleet, directory: Path):
    with pytest.raises(CommandError, match="no such directory"):
        fleet.run_query("nas1", disk_write.query_directory(f"{directory}/none"))
