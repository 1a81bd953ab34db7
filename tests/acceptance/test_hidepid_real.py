"""The hidepid runbooks on this machine's kernel, in a namespace with its own /proc and /etc."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.command import NO_HOOKS, Answer, QueryCommand, RunHooks, Shell
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from tests.acceptance.direct_execution import execute_plan, make_plan, undo_plan
from tests.playground.probation import Probations
from tests.runbooks.declared import load_change, load_check
from tests.scripted_fleet import build_inventory

SetHidepid = load_change("hidepid set")

ShowHidepid = load_check("hidepid show")

SHOW = ShowHidepid.model_validate({"host": "web1"})
HIDE = SetHidepid.model_validate({"host": "web1", "value": "2"})
PROC = "proc\t/proc\tproc\tdefaults,nosuid\t0\t0\n"

_NAMESPACE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
# The namespace's own /etc, then a word that all is there; it ends when nobody listens any more.
_BEGIN = (
    'mount -t overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" none /etc && '
    "echo ready && exec cat"
)


class Inside:
    """Runs commands in the namespace of a process, where a fleet would run them on a host."""

    def __init__(self, process: int) -> None:
        self._enter = ("nsenter", "--target", str(process), "--mount", "--pid", "--")

    def run(
        self,
        host: Host,  # noqa: ARG002 - it is here
        command: QueryCommand,
        /,
        *,
        through: tuple[Host, ...] = (),  # noqa: ARG002 - and reached through nobody
        hooks: RunHooks = NO_HOOKS,  # noqa: ARG002 - nothing listens
    ) -> Answer:
        assert isinstance(command, Shell)
        done = subprocess.run(
            (*self._enter, *command.words),
            input=command.stdin.encode(),
            capture_output=True,
            timeout=30,
            check=False,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def begin(self, *_: object, through: tuple[Host, ...] = ()) -> None:
        """Begin nothing that is not waited for."""

    def close(self) -> None:
        pass


@pytest.fixture
def etc() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for name in ("upper", "work"):
            (Path(folder) / name).mkdir()
        (Path(folder) / "upper" / "fstab").write_text("# nothing\n")
        yield Path(folder) / "upper"


@pytest.fixture
def fleet(etc: Path) -> Iterator[Fleet]:
    if os.geteuid() != 0:
        pytest.skip("only root may have a /proc of its own")
    holder = subprocess.Popen(
        (*_NAMESPACE, "sh", "-c", _BEGIN, "sh", str(etc.parent)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != b"ready\n":
            pytest.skip("this machine gives nobody a namespace with an /etc of its own")
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        host = build_inventory("web1")["web1"].model_dump(mode="json", exclude={"name"})
        host["settings"] = Probations(etc.parent / "root").settings
        inventory = Inventory.model_validate({"hosts": {"web1": host}})
        yield Fleet(inventory, Inside(int(children[0])))
    finally:
        holder.communicate()


@pytest.mark.real
@pytest.mark.parametrize("line", ["", PROC])
def test_hidepid_hides_processes_until_the_undo(fleet: Fleet, etc: Path, line: str):
    fstab = etc / "fstab"
    fstab.write_text("# /proc is below\n" + line)
    assert SHOW.report(SHOW.read(fleet.run_query)).healthy
    before = fstab.read_text()
    plan = execute_plan(fleet, HIDE)
    assert len(plan.steps) == 4
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.healthy
    assert "users see only their own processes (hidepid=2)" in report.summary
    undo_plan(fleet, HIDE, plan)
    assert fstab.read_text() == before
    assert "(hidepid=0)" in SHOW.report(SHOW.read(fleet.run_query)).summary


@pytest.mark.real
@pytest.mark.parametrize("line", ["", PROC])
def test_unconfirmed_hidepid_change_is_restored_by_the_host(fleet: Fleet, etc: Path, line: str):
    fstab = etc / "fstab"
    fstab.write_text("# /proc is below\n" + line)
    before = fstab.read_text()
    *steps, _keep = make_plan(fleet, HIDE).steps
    for step in steps:
        fleet.run_command("web1", fleet.resolve_command("web1", step.do))
    assert fstab.read_text() != before
    Probations(etc.parent / "root").let_time_run_out("hidepid")
    assert fstab.read_text() == before
    assert "(hidepid=0)" in SHOW.report(SHOW.read(fleet.run_query)).summary
