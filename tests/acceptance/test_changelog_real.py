"""The change log with hosts as witnesses, on a full disk and on a read-only disk."""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bot.audit import change_log, checkpoints, verification
from bot.audit.change_log import Entry
from bot.audit.event_type import UnknownEvent
from bot.db import migrations, runs
from bot.db.database import Database, StoreUnavailable
from bot.integrations import witness_file
from bot.model.run import RequestOrigin, RequestTerms, State
from bot.model.signing import SigningKey
from bot.policy import PolicyDirectory
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.command import Shell
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from tests.bot.harness import ManualDispatcher, open_harness
from tests.bot.rewritten_log import entries_of, rewrite
from tests.playground.sshd import Sshd
from tests.policies import write_policy
from tests.toy import RUNBOOKS, SetSwitch, ShowSwitches

pytestmark = pytest.mark.real

_WEB = RequestOrigin("web")


@pytest.fixture
def host(tmp_path: Path) -> Generator[Sshd]:
    """A host whose `logger` reaches a log of its own: this machine may have none."""
    programs = tmp_path / "bin"
    programs.mkdir()
    logger = programs / "logger"
    real = shutil.which("logger") or "/usr/bin/logger"
    logger.write_text(f'#!/bin/sh\nexec {real} -u {tmp_path / "log"} "$@"\n')
    logger.chmod(0o755)
    with (
        _record_syslog(tmp_path / "log", tmp_path / "journal"),
        Sshd(env={"PATH": f"{programs}:/usr/bin:/bin"}) as server,
    ):
        yield server


@contextmanager
def _record_syslog(place: Path, journal: Path) -> Generator[None]:
    """Write down what arrives at a socket such as /dev/log."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(place))

        def write_down() -> None:
            with journal.open("ab", buffering=0) as out:
                while message := receiver.recv(8192):
                    out.write(message + b"\n")

        listener = threading.Thread(target=write_down)
        listener.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.connect(str(place))
                last.send(b"")
            listener.join(10)


def _fleet(host: Sshd) -> Fleet:
    inventory = Inventory.model_validate({"hosts": {"lb1": host.inventory_entry(area="edge")}})
    return Fleet(inventory, SshPool(host.directory))


def test_syslog_of_a_host_reveals_every_truncation_of_the_change_log(host: Sshd, tmp_path: Path):

    database = Database(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())
    migrations.upgrade_schema(database)
    fleet = _fleet(host)
    with database.transaction() as tx:
        verification.open_log(tx)
    for number in range(1, 6):
        with database.transaction() as tx:
            change_log.append_entry(
                tx, UnknownEvent(kind="step sending", facts={"step": 1}), run=number, host="lb1"
            )
            point = verification.create_checkpoint(tx)
            for n in range(3):
                change_log.append_entry(
                    tx, UnknownEvent(kind="noted", facts={"step": n}), run=number
                )
        note = f"run {number} step 1: {point.line}"
        fleet.run_command("lb1", replace(Shell(("true",)), note=note))
    fleet.close()
    points = _wait_for_checkpoints(tmp_path / "journal", 5)
    assert [point.size for point in points] == [2, 6, 10, 14, 18]
    whole = entries_of(database)
    for cut in range(1, len(whole)):
        assert _is_truncation_detected(database, whole, cut, points) == (cut > 3), cut
        # The twin: without the witness, what is left is a good log.
        assert not _is_truncation_detected(database, whole, cut, [])
    database.close()


def _wait_for_checkpoints(journal: Path, count: int) -> list[checkpoints.Checkpoint]:
    deadline = time.monotonic() + 10
    while journal.read_text().count("keyturn checkpoint") < count:
        assert time.monotonic() < deadline, journal.read_text()
        time.sleep(0.01)
    return witness_file.read_checkpoints(journal)


def _is_truncation_detected(
    database: Database, whole: list[Entry], cut: int, points: list[checkpoints.Checkpoint]
) -> bool:
    rewrite(database, whole[: len(whole) - cut])
    with database.reading() as tx:
        return verification.verify_log(tx, witnesses=points).broken is not None


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if os.getuid() != 0 or mounted.returncode != 0:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=False)


def _fill_disk(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"x" * 4096)
        except OSError:
            return filler


def test_full_disk_stops_all_requests_until_there_is_space_again(
    small_disk: Path, host: Sshd, tmp_path: Path
):

    database = Database(f"sqlite:///{small_disk / 'keyturn.db'}", SigningKey.create())
    migrations.upgrade_schema(database)
    policies: PolicyDirectory = write_policy(tmp_path / "policy")
    fleet, queue = _fleet(host), ManualDispatcher()
    flow = KeyturnService(WorkflowContext(database, policies, fleet, queue, runbooks=RUNBOOKS))
    with database.transaction() as tx:
        verification.open_log(tx)
    filler = _fill_disk(small_disk)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="full"):
            flow.request_run(ShowSwitches(host="lb1"), RequestTerms("dora", RequestOrigin("web")))
    assert "full" in str(database.error)
    assert (queue.enqueued, host.connections) == ([], 0)
    filler.unlink()
    run = flow.request_run(ShowSwitches(host="lb1"), RequestTerms("dora", RequestOrigin("web")))
    assert (run.state, database.error) == (State.PLANNING, None)
    with database.reading() as tx:
        assert verification.verify_log(tx).entries > 0
    fleet.close()
    database.close()


@contextmanager
def _remount_read_only(disk: Path) -> Generator[None]:
    """Have the disk refuse to be written, as after errors that the kernel had enough of."""

    def mount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

    mount("ro")
    try:
        yield
    finally:
        mount("rw")


def _add_approved_run(flow: KeyturnService, queue: ManualDispatcher, database: Database) -> int:
    """Return a request that was let go before its disk can only be read."""
    lamp = SetSwitch(host="lb1", name="lamp", value="on")
    run = flow.request_run(lamp, RequestTerms("dora", RequestOrigin("web")))
    flow.advancer.advance_run(run.id)
    with database.reading() as tx:
        planned = runs.get_run(tx, run.id)
    assert planned.state is State.PENDING, planned.summary
    flow.approve_run(run.id, person="olga", digest=planned.digest)
    queue.enqueued.clear()
    # Nobody has it open while it is mounted anew, as after a restart on such a disk.
    database.engine.dispose()
    return run.id


def test_read_only_disk_stops_an_approved_run_before_it_is_sent(small_disk: Path, tmp_path: Path):
    database = Database(f"sqlite:///{small_disk / 'keyturn.db'}", SigningKey.create())
    with open_harness(tmp_path, database=database) as harness:
        flow, queue, fleet = harness.service, harness.dispatcher, harness.fleet
        number = _add_approved_run(flow, queue, database)
        asked = fleet.asked
        with _remount_read_only(small_disk):
            flow.advancer.advance_run(number)
            with pytest.raises(StoreUnavailable):
                flow.request_run(
                    SetSwitch(host="lb1", name="fan", value="on"), RequestTerms("dora", _WEB)
                )
            assert (fleet.sent, fleet.asked) == ([], asked)
            assert database.error
            database.engine.dispose()
        # The twin: the same request, where the log can be written.
        flow.advancer.wake_stalled_runs()
        harness.run_queued_work()
        assert harness.get_run(number).state is State.SUCCEEDED
        assert database.error is None
