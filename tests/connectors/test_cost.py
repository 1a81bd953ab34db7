"""What a command costs us and its host: counted and not timed, as times are the machine's.

Each figure is what it takes now, and whoever needs more says why where he changes it.
"""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import uptime
from connectors.command import Shell
from connectors.hearing import told_to
from connectors.marker import Mark
from connectors.packets import WarmPacketizer
from connectors.ssh import Session
from connectors.talk import Talk
from connectors.wrapper import Wrapped
from tests.connectors.test_ssh import connected
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

# Tells the name of each process from the command up to sshd's own for the connection.
_ANCESTORS = (
    "p=$$; while read -r _ name _ up _ </proc/$p/stat; do "
    "case $name in (*sshd*) break;; esac; echo $name; p=$up; done"
)


@pytest.fixture
def session(sshd: Sshd) -> Iterator[Session]:
    with connected(sshd) as session:
        assert session.run(Shell(("echo", "warm"))).out == "warm\n"
        yield session


def test_a_command_on_a_warm_connection_starts_no_thread(
    session: Session, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize("stdin", ["", "said\n", "said\n" * 2**20])
def test_nobody_looks_for_what_they_are_woken_by(
    session: Session, monkeypatch: pytest.MonkeyPatch, stdin: str
):
    in_vain: list[float] = []
    wait = Talk.wait

    def noted(talk: Talk, seconds: float) -> bool:
        woken = wait(talk, seconds)
        in_vain.extend([] if woken else [seconds])
        return woken

    monkeypatch.setattr(Talk, "wait", noted)
    for _ in range(3):
        answer = session.run(Shell(("tail", "-n", "1"), stdin=stdin))
        assert answer.out == stdin[-5:]
    assert in_vain == []


def test_whoever_waits_for_an_answer_is_woken_by_its_end_and_not_by_each_word(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    looked: list[Talk] = []
    look = Talk.look

    def noted(talk: Talk) -> None:
        looked.append(talk)
        look(talk)

    monkeypatch.setattr(Talk, "look", noted)
    slowly = Shell(("sh", "-c", "for n in 1 2 3 4 5 6 7 8 9; do echo $n; sleep 0.05; done"))
    session.run(slowly)
    patiently, looked[:] = len(looked), []
    with told_to(lambda _: None):
        session.run(slowly)
    # Before it waits, at the end, and where that takes long once in a while.
    assert patiently <= 4 < 9 <= len(looked)


def test_a_command_puts_no_pattern_together(session: Session, monkeypatch: pytest.MonkeyPatch):
    session.run(Shell(("echo", "it's known")))
    put_together: list[object] = []

    def note(*pattern: object) -> None:
        put_together.append(pattern)

    monkeypatch.setattr(re, "compile", note)
    Wrapped(Shell(("echo", "it's known")))
    assert put_together == []


def test_on_the_host_two_processes_wait_for_the_command(session: Session):
    """The script, which sees how it ends, and `timeout`; the login's shell has become the one."""
    assert session.run(Shell(("sh", "-c", _ANCESTORS))).out.split() == [
        "(sh)",
        "(timeout)",
        "(sh)",
    ]


def _started(shell: Shell, home: Path) -> int:
    """Return how many processes a host starts for it, in a world where they are numbered anew."""
    line = Wrapped(shell).line
    script = 'sh -c "$1" >&2; sh -c "echo \\$\\$"'
    said = subprocess.run(
        ["unshare", "--map-root-user", "--pid", "--fork", "sh", "-c", script, "count", line],
        input=shell.stdin.encode(),
        capture_output=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
    )
    if not said.stdout:
        pytest.skip(f"this machine gives nobody a world of its own: {said.stderr!r}")
    assert re.search(rb" [01]\n\Z", said.stderr)
    # The world itself is one, and so is the last, which tells its number.
    return int(said.stdout) - 2


def test_a_host_starts_four_processes_for_the_uptime_check(tmp_path: Path):
    """The login's shell, the script, `timeout` and what reads the files."""
    command = uptime.uptime().command
    assert isinstance(command, Shell)
    assert _started(command, tmp_path) <= 4


@pytest.mark.parametrize(("stdin", "most"), [("", 11), ("said\n", 12)])
def test_a_host_starts_few_processes_for_a_marked_step(tmp_path: Path, stdin: str, most: int):
    """Besides four: `mkdir`, two shells, two `tee`, two for the note, and one to read what came.

    The first of all makes the directory for markers too, and looks for those that are too old.
    """

    def step(n: int) -> Shell:
        mark = Mark("f00d-7-5f", n)
        return Shell(("cat",), stdin, note="run 7 step 1", mark=mark)

    assert _started(step(1), tmp_path) <= most + 2
    assert _started(step(2), tmp_path) <= most


def test_whoever_waits_for_a_command_makes_few_calls(session: Session):
    """They are what it costs us, more than what is sealed and sent."""
    made: list[int] = []
    for _ in range(5):
        calls: list[str] = []
        sys.setprofile(lambda _frame, event, _what, calls=calls: calls.append(event))
        try:
            session.run(Shell(("true",)))
        finally:
            sys.setprofile(None)
        made.append(sum(event in {"call", "c_call"} for event in calls))
    assert min(made) <= 225, made


def test_a_command_is_heard_in_ten_packets(session: Session, monkeypatch: pytest.MonkeyPatch):
    opened: list[int] = []
    payloads = WarmPacketizer.payloads

    def noted(packetizer: WarmPacketizer, read: bytearray) -> list[bytes]:
        found = payloads(packetizer, read)
        opened.append(len(found))
        return found

    monkeypatch.setattr(WarmPacketizer, "payloads", noted)
    told: list[int] = []
    for _ in range(5):
        opened.clear()
        session.run(Shell(("true",)))
        told.append(sum(opened))
    assert 0 < min(told) <= 10, told
