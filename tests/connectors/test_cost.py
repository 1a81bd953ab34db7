"""The cost of a command here and on its host: threads and processes are counted, not timed.

Each limit is the current count. A change that needs more gives its reason beside the limit.
"""

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import uptime
from connectors.command import Shell
from connectors.ssh import SshSession
from connectors.step_marker import StepMarker
from connectors.wrapper import WrappedCommand
from tests.connectors.test_ssh import eventually, open_session
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

# Tells the name of each process from the command up to sshd's own for the connection.
_ANCESTORS = (
    "p=$$; while read -r _ name _ up _ </proc/$p/stat; do "
    "case $name in (*sshd*) break;; esac; echo $name; p=$up; done"
)

_ALONE = ("unshare", "--map-root-user", "--pid", "--fork")


@pytest.fixture
def session(sshd: Sshd) -> Iterator[SshSession]:
    with open_session(sshd) as session:
        assert session.run(Shell(("echo", "warm"))).out == "warm\n"
        yield session


def test_command_on_an_open_ssh_connection_starts_no_thread(
    session: SshSession, monkeypatch: pytest.MonkeyPatch
):
    started: list[str] = []
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    for _ in range(5):
        session.run(Shell(("true",)))
    assert started == []


def test_wrapping_a_command_compiles_no_regular_expression(
    session: SshSession, monkeypatch: pytest.MonkeyPatch
):
    session.run(Shell(("echo", "it's known")))
    compiled: list[object] = []

    def note(*pattern: object) -> None:
        compiled.append(pattern)

    monkeypatch.setattr(re, "compile", note)
    WrappedCommand(Shell(("echo", "it's known")))
    assert compiled == []


def test_only_shell_and_timeout_wait_for_a_command_on_the_host(session: SshSession):
    """The script, which reads the exit status, and `timeout`: exec replaced the login shell."""
    assert session.run(Shell(("sh", "-c", _ANCESTORS))).out.split() == [
        "(sh)",
        "(timeout)",
        "(sh)",
    ]


def _count_processes(shell: Shell, home: Path) -> int:
    """Return how many processes a host starts for a command, counted in a new PID namespace."""
    wrapped = WrappedCommand(shell)
    script = 'sh -c "$1" >&2; sh -c "echo \\$\\$"'
    output = subprocess.run(
        [
            "unshare",
            "--map-root-user",
            "--pid",
            "--fork",
            "sh",
            "-c",
            script,
            "count",
            wrapped.line,
        ],
        input=wrapped.word_line + shell.stdin.encode(),
        capture_output=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
    )
    if not output.stdout:
        pytest.skip(f"this machine gives nobody a world of its own: {output.stderr!r}")
    assert re.search(rb" [01]\n\Z", output.stderr)
    # The world itself is one, and so is the last, which tells its number.
    return int(output.stdout) - 2


def test_a_host_starts_four_processes_for_the_uptime_check(tmp_path: Path):
    """The login's shell, the script, `timeout` and what reads the files."""
    command = uptime.query_uptime().command
    assert isinstance(command, Shell)
    assert _count_processes(command, tmp_path) <= 4


@pytest.mark.parametrize(("stdin", "most"), [("", 11), ("said\n", 12)])
def test_a_host_starts_few_processes_for_a_marked_step(tmp_path: Path, stdin: str, most: int):
    """Besides those four: `mkdir`, two shells, two `tee`, two for the note, one that reads stdin.

    The first step also creates the directory of the markers and deletes old ones.
    """

    def step(n: int) -> Shell:
        mark = StepMarker("f00d-7-5f", n)
        return Shell(("cat",), stdin, note="run 7 step 1", marker=mark)

    assert _count_processes(step(1), tmp_path) <= most + 2
    assert _count_processes(step(2), tmp_path) <= most


def test_idle_ssh_connection_wakes_its_thread_at_most_once_a_second(session: SshSession):
    thread = session.transport
    assert eventually(lambda: _count_wakes_within(thread, seconds=1.0) <= 1, seconds=30)
    before = _count_wakes(thread)
    for _ in range(10):
        session.run(Shell(("true",)))
    assert _count_wakes(thread) > before + 5  # it is this thread that would have been woken


def _count_wakes_within(thread: threading.Thread, *, seconds: float) -> int:
    before, end = _count_wakes(thread), time.monotonic() + seconds
    while time.monotonic() < end and _count_wakes(thread) == before:
        time.sleep(0.05)
    return _count_wakes(thread) - before


def _count_wakes(thread: threading.Thread) -> int:
    """Return how often the thread has given up a processor to wait for something."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("voluntary_ctxt")]
    return int(line.split()[1])
