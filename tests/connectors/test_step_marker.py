"""Markers of steps on a host, with each shell that can be its `sh`."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from connectors.command import Answer, Shell
from connectors.errors import (
    AlreadyStartedError,
    CommandError,
    CommandTimeoutError,
    FencedError,
    ParseError,
    SettingError,
    SetupError,
    UnknownOutcomeError,
)
from connectors.inventory import Inventory
from connectors.step_marker import STEP_SCRIPT, StepMarker
from connectors.step_status import NO_STATUS, MarkerState, StepStatus, query_step_status
from connectors.wrapper import WrappedCommand
from tests.scripted_fleet import build_inventory

STEP = StepMarker("f00d-7-5f", 1)


@dataclass(frozen=True)
class Machine:
    """A stand-in for a host: an `sh`, its programs, and a home directory."""

    home: Path
    path: str

    @property
    def marker_directory(self) -> Path:
        return self.home / ".keyturn"

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": self.path, "HOME": str(self.home)}

    def start_step(self, shell: Shell) -> tuple[subprocess.Popen[bytes], WrappedCommand]:
        wrapped = WrappedCommand(shell)
        process = subprocess.Popen(
            ["sh", "-c", wrapped.line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        assert process.stdin is not None
        process.stdin.write(wrapped.word_line)
        process.stdin.flush()
        return process, wrapped

    def run_step(self, shell: Shell, *, seconds: float = 0, stdin: str | None = None) -> Answer:
        process, wrapped = self.start_step(shell)
        out, err = process.communicate((shell.stdin if stdin is None else stdin).encode(), 30)
        wrapped.out.add(out)
        wrapped.err.add(err)
        return wrapped.read_answer(seconds=seconds)

    def query_marker(self, mark: StepMarker = STEP) -> StepStatus:
        query = query_step_status(mark)
        assert isinstance(query.command, Shell)
        result = subprocess.run(
            query.command.words, capture_output=True, text=True, check=True, env=self.environment
        )
        assert result.stderr == ""
        return query.parse(result.stdout)


def _busybox(directory: Path) -> str:
    """Return a PATH with only busybox and its applets."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed")
    applets = "sh timeout tee mkdir rm cat dd wc date find sleep touch env echo kill logger printf"
    for applet in (*applets.split(), "head", "seq"):
        (directory / applet).symlink_to(busybox)
    return str(directory)


def _use_shell(shell: str) -> Callable[[Path], str]:
    def path(directory: Path) -> str:
        program = shutil.which(shell)
        if program is None:
            pytest.skip(f"{shell} is not installed")
        (directory / "sh").symlink_to(program)
        return f"{directory}:/usr/bin:/bin"

    return path


@pytest.fixture(params=["dash", "bash", "busybox"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    programs, home = tmp_path / "programs", tmp_path / "home dir"
    programs.mkdir()
    home.mkdir()
    kind: str = request.param
    return Machine(home, (_busybox if kind == "busybox" else _use_shell(kind))(programs))


@pytest.fixture
def host(tmp_path: Path) -> Machine:
    home = tmp_path / "home"
    home.mkdir()
    return Machine(home, "/usr/bin:/bin")


def _make_step(machine: Machine) -> Shell:
    """Return a step that appends a line to a file each time that it runs."""
    ledger = machine.home / "ledger"
    return Shell(
        ("sh", "-c", f'cat; echo no >&2; echo x >>"{ledger}"; exit 3'), "yes\n", marker=STEP
    )


def _count_runs(machine: Machine) -> int:
    ledger = machine.home / "ledger"
    return ledger.read_text().count("x") if ledger.exists() else 0


def test_step_with_a_marker_returns_the_answer_of_a_step_without(machine: Machine):
    step = _make_step(machine)
    assert (
        machine.run_step(step)
        == machine.run_step(replace(step, marker=None))
        == Answer(3, "yes\n", "no\n")
    )


def test_step_with_a_marker_is_run_once_when_sent_several_times(machine: Machine):
    machine.run_step(_make_step(machine))
    for _ in range(3):
        with pytest.raises(AlreadyStartedError) as error:
            machine.run_step(_make_step(machine))
        assert error.value.started is None
    assert _count_runs(machine) == 1


def test_without_the_marker_a_step_is_run_each_time(machine: Machine):
    for _ in range(3):
        machine.run_step(replace(_make_step(machine), marker=None))
    assert _count_runs(machine) == 3


def test_step_sent_by_many_at_once_is_run_once(host: Machine):
    processes = [host.start_step(_make_step(host))[0] for _ in range(8)]
    outputs = [each.communicate(b"yes\n", 30)[0] for each in processes]
    assert _count_runs(host) == 1
    assert sum(b" held\n" in each for each in outputs) == 7


def test_marker_reports_exit_status_and_output_of_an_ended_step(machine: Machine):
    machine.run_step(_make_step(machine))
    status = machine.query_marker()
    assert (status.state, status.status, status.out, status.err) == (
        MarkerState.ENDED,
        3,
        "yes\n",
        "no\n",
    )
    assert status.is_complete
    assert status.started_at is not None
    assert status.ended_at is not None
    assert abs(status.ended_at - time.time()) < 60
    with pytest.raises(CommandError, match="output: yes / no"):
        status.to_answer(_make_step(machine))


def test_marker_query_closes_a_step_that_never_started(machine: Machine):
    assert machine.query_marker().state is MarkerState.CLOSED
    with pytest.raises(AlreadyStartedError):
        machine.run_step(_make_step(machine))
    assert _count_runs(machine) == 0
    assert machine.query_marker().state is MarkerState.CLOSED


def _wait_for(fate: MarkerState, machine: Machine) -> StepStatus:
    deadline = time.monotonic() + 20
    while (status := machine.query_marker()).state is not fate:
        assert time.monotonic() < deadline, status
        time.sleep(0.02)
    return status


def _wait_until_started(machine: Machine) -> None:
    deadline = time.monotonic() + 20
    output_file = machine.marker_directory / "f00d-7-5f-1" / "out"
    while not (output_file.exists() and output_file.read_text() == "at last\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _make_waiting_step(machine: Machine, *, says: str = "echo on; echo off >&2") -> Shell:
    """Return a step that prints lines and waits for the file `gate` before it ends."""
    gate = machine.home / "gate"
    wait = f'while [ ! -e "{gate}" ]; do sleep 0.05; done'
    return Shell(("sh", "-c", f"echo at last; {wait}; {says}; exit 4"), marker=STEP)


def test_marker_distinguishes_a_running_step_from_an_ended_one(machine: Machine):
    process, _ = machine.start_step(_make_waiting_step(machine))
    _wait_until_started(machine)
    assert machine.query_marker().state is MarkerState.RUNNING
    (machine.home / "gate").touch()
    process.communicate(timeout=30)
    assert machine.query_marker().state is MarkerState.ENDED


def test_step_with_a_marker_continues_after_the_connection_is_closed(machine: Machine):
    """As sshd does it: the pipes are closed, and no signal is sent."""
    process, _ = machine.start_step(
        _make_waiting_step(machine, says="seq 1 20000; seq 1 20000 >&2")
    )
    _wait_until_started(machine)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    (machine.home / "gate").touch()
    process.wait(30)
    status = _wait_for(MarkerState.ENDED, machine)
    assert status.status == 4
    assert status.out.endswith("19999\n20000\n")
    assert status.err.endswith("19999\n20000\n")
    if process.stdin is not None:
        process.stdin.close()


def test_without_the_marker_a_step_is_cut_off_when_the_connection_closes(host: Machine):
    ended = host.home / "ended"
    step = _make_waiting_step(host, says=f"echo much; echo more; seq 1 200000 && touch {ended}")
    process, _ = host.start_step(replace(step, marker=None))
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    (host.home / "gate").touch()
    process.wait(30)
    assert not ended.exists()
    for stream in (process.stdin, process.stderr):
        assert stream is not None
        stream.close()


def test_marker_of_a_killed_step_is_gone_with_unknown_outcome(machine: Machine):
    process, _ = machine.start_step(_make_waiting_step(machine))
    _wait_until_started(machine)
    _kill_descendants(process.pid)
    process.communicate(timeout=30)
    status = machine.query_marker()
    assert status.state is MarkerState.GONE
    assert status.out == "at last\n"
    assert not status.is_complete
    with pytest.raises(UnknownOutcomeError, match="exit status is unknown"):
        status.to_answer(_make_waiting_step(machine))


def _kill_descendants(pid: int) -> None:
    for each in _list_descendants(pid):
        # Some of them end by themselves, while others are being killed.
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def _list_descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, *(each for child in children for each in _list_descendants(int(child)))]


def test_marker_reports_a_reboot_of_the_host(machine: Machine):
    process, _ = machine.start_step(_make_waiting_step(machine))
    _wait_until_started(machine)
    _kill_descendants(process.pid)
    process.communicate(timeout=30)
    file = machine.marker_directory / "f00d-7-5f-1" / "begun"
    word, _, rest = file.read_text().split(" ", 2)
    file.write_text(f"{word} 11111111-2222-3333-4444-555555555555 {rest}")
    assert machine.query_marker().state is MarkerState.REBOOTED


@pytest.mark.parametrize("half", ["", "3"])
def test_marker_with_a_partly_written_end_is_gone(machine: Machine, half: str):
    """As after a power cut, or with a full disk."""
    machine.run_step(_make_step(machine))
    (machine.marker_directory / "f00d-7-5f-1" / "end").write_text(half)
    status = machine.query_marker()
    assert (status.state, status.status) == (MarkerState.GONE, None)


def test_marker_of_a_gone_step_ignores_another_process_with_its_pid(machine: Machine):
    process, _ = machine.start_step(_make_waiting_step(machine))
    _wait_until_started(machine)
    _kill_descendants(process.pid)
    process.communicate(timeout=30)
    file = machine.marker_directory / "f00d-7-5f-1" / "begun"
    word, boot, pid, rest = file.read_text().split(" ", 3)
    assert pid.isdigit()
    file.write_text(f"{word} {boot} {os.getpid()} {rest}")
    assert machine.query_marker().state is MarkerState.GONE


def test_marker_with_only_a_directory_is_starting(machine: Machine):
    (machine.marker_directory / "f00d-7-5f-1").mkdir(parents=True)
    assert machine.query_marker().state is MarkerState.STARTING


def test_step_with_a_lower_fencing_token_is_refused(machine: Machine):
    machine.run_step(Shell(("true",), marker=StepMarker("r", 1, fence=3)))
    step = replace(_make_step(machine), marker=StepMarker("r", 2, fence=2))
    with pytest.raises(FencedError) as error:
        machine.run_step(step)
    assert error.value.started is False
    assert _count_runs(machine) == 0
    machine.run_step(replace(step, marker=StepMarker("r", 2, fence=3)))
    machine.run_step(replace(step, marker=StepMarker("other", 2, fence=1)))
    assert _count_runs(machine) == 2


def test_marker_query_with_a_higher_fencing_token_fences_older_workers(machine: Machine):
    machine.query_marker(StepMarker("r", 1, fence=5))
    with pytest.raises(FencedError):
        machine.run_step(replace(_make_step(machine), marker=StepMarker("r", 2, fence=4)))


def test_step_is_not_started_when_its_stdin_is_incomplete(machine: Machine):
    with pytest.raises(SetupError, match="did not arrive completely") as error:
        machine.run_step(_make_step(machine), stdin="ye")
    assert error.value.started is False
    assert _count_runs(machine) == 0
    assert machine.query_marker().state is MarkerState.CLOSED


def test_marker_does_not_keep_stdin_of_a_step(machine: Machine):
    machine.run_step(_make_step(machine))
    kept = {
        file.name: file.stat() for file in (machine.marker_directory / "f00d-7-5f-1").iterdir()
    }
    assert set(kept) == {"begun", "in", "out", "err", "end"}
    assert kept["in"].st_size == 0


def test_marker_keeps_a_megabyte_of_output_and_all_of_it_arrives(machine: Machine):
    step = Shell(("sh", "-c", "head -c 3000000 /dev/zero; echo end >&2"), marker=STEP)
    answer = machine.run_step(step)
    assert (len(answer.out), answer.err) == (3_000_000, "end\n")
    status = machine.query_marker()
    assert 1_000_000 <= status.out_bytes <= 2 * 1024 * 1024
    assert not status.is_complete
    assert status.to_answer(step).omitted_bytes


def test_note_of_a_step_is_logged_on_the_host_before_the_step_starts(machine: Machine):
    note_file, logger = machine.home / "told", machine.home.parent / "programs" / "logger"
    logger.unlink(missing_ok=True)
    logger.write_text(f'#!/bin/sh\nsleep 0.3; echo "$3" >"{note_file}"\n')
    logger.chmod(0o755)
    step = Shell(("cat", str(note_file), "-"), "read too\n", note="run 7 step 1", marker=STEP)
    assert machine.run_step(step).out == "run 7 step 1\nread too\n"


def test_background_process_does_not_delay_the_answer_of_a_marked_step(host: Machine):
    process, wrapped = host.start_step(
        Shell(("sh", "-c", "echo up; sleep 300 & echo $!"), marker=STEP)
    )
    assert process.stdout is not None
    assert process.stderr is not None
    for stream, kept, lines in (
        (process.stdout, wrapped.out, 4),
        (process.stderr, wrapped.err, 2),
    ):
        for _ in range(lines):
            kept.add(stream.readline())
    daemon = int(wrapped.read_answer(seconds=0).out.split()[1])
    os.kill(daemon, signal.SIGKILL)
    process.communicate(timeout=30)


def test_marker_variables_are_not_in_the_environment_of_a_step(machine: Machine):
    answer = machine.run_step(Shell(("env",), marker=STEP))
    assert "kt_" not in answer.out
    # The directory that the tests run in may have the name.
    own = answer.out.replace(str(machine.home), "").replace(str(Path.cwd()), "")
    assert "keyturn" not in own


def test_marker_directory_has_mode_700(machine: Machine):
    machine.run_step(_make_step(machine))
    assert machine.marker_directory.stat().st_mode & 0o777 == 0o700
    assert (machine.marker_directory / "f00d-7-5f-1").stat().st_mode & 0o777 == 0o700


def _create_old_files(machine: Machine, names: dict[str, int]) -> None:
    """Create files and directories beside the markers, of these ages in days."""
    machine.marker_directory.mkdir(mode=0o700)
    now = time.time()
    for name, days in names.items():
        path = machine.marker_directory / name
        path.touch() if "@" in name else path.mkdir()
        os.utime(path, (now - days * 86400, now - days * 86400))


def _wait_until_deleted(machine: Machine, *names: str) -> None:
    deadline = time.monotonic() + 20
    while any((machine.marker_directory / name).exists() for name in names):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_markers_are_deleted_after_a_week(machine: Machine):
    _create_old_files(
        machine, {"f00d-3-5e-1": 9, "f00d-3-5e@1": 9, "f00d-4-5e-1": 6, "f00d-4-5e@1": 6}
    )
    machine.run_step(_make_step(machine))
    _wait_until_deleted(machine, "f00d-3-5e-1", "f00d-3-5e@1")
    assert (machine.marker_directory / "f00d-4-5e-1").exists()
    assert (machine.marker_directory / "f00d-4-5e@1").exists()


def test_old_markers_are_deleted_at_most_once_in_several_hours(machine: Machine):
    hour = 3600
    _create_old_files(machine, {"f00d-3-5e-1": 9})
    machine.run_step(Shell(("true",), marker=StepMarker(f"f00d-8-{100 * hour:x}", 1)))
    _wait_until_deleted(machine, "f00d-3-5e-1")
    late = machine.marker_directory / "f00d-4-5e-1"
    late.mkdir()
    os.utime(late, (0, 0))
    machine.run_step(Shell(("true",), marker=StepMarker(f"f00d-9-{101 * hour:x}", 1)))
    assert late.exists()
    machine.run_step(Shell(("true",), marker=StepMarker(f"f00d-10-{120 * hour:x}", 1)))
    _wait_until_deleted(machine, "f00d-4-5e-1")


def test_old_files_that_are_no_markers_are_not_deleted(machine: Machine):
    others = {".ssh": 400, "documents": 400, "f00d": 400, "beef-3-5e-1": 9, "me@home": 400}
    _create_old_files(machine, {"f00d-3-5e-1": 9} | others)
    machine.run_step(_make_step(machine))
    _wait_until_deleted(machine, "f00d-3-5e-1")
    assert all((machine.marker_directory / name).exists() for name in others)


def _make_directory_a_link(machine: Machine) -> None:
    elsewhere = machine.home / "elsewhere"
    elsewhere.mkdir()
    machine.marker_directory.symlink_to(elsewhere)


def _make_directory_a_file(machine: Machine) -> None:
    machine.marker_directory.touch()


def _make_home_missing(machine: Machine) -> None:
    machine.home.rmdir()


@pytest.mark.parametrize(
    "spoil", [_make_directory_a_link, _make_directory_a_file, _make_home_missing]
)
def test_step_is_not_run_when_its_marker_cannot_be_stored(
    machine: Machine, spoil: Callable[[Machine], None]
):
    spoil(machine)
    step = Shell(("touch", f"{machine.home.parent}/canary"), marker=STEP)
    with pytest.raises(
        SetupError, match=r"keyturn\.marker of the host to another one, or to none"
    ) as error:
        machine.run_step(step)
    assert error.value.started is False
    assert not (machine.home.parent / "canary").exists()
    assert machine.query_marker().state is MarkerState.UNMARKED


@pytest.mark.parametrize("room", ["", "mkdir .keyturn;", "mkdir .keyturn; : >.keyturn/other;"])
def test_step_is_not_started_on_a_host_with_a_full_disk(machine: Machine, room: str):
    """On a full file system in a mount namespace."""
    fill = "head -c 200000 /dev/zero >filler 2>/dev/null; "
    world = (
        'mount -t tmpfs -o size=64k,nr_inodes=8 none "$HOME" && cd "$HOME" || exit 90; '
        f'{room} {fill} touch a b c d e f g 2>/dev/null; exec "$@"'
    )
    alone = ["unshare", "--map-root-user", "--mount", "/bin/sh", "-c", world, "world"]
    wrapped = WrappedCommand(Shell(("sh", "-c", "touch /tmp/never"), marker=STEP))
    path = {**machine.environment, "PATH": f"{machine.path}:/usr/bin:/bin:/usr/sbin:/sbin"}
    program = shutil.which("sh", path=machine.path) or "sh"
    result = subprocess.run(
        [*alone, program, "-c", wrapped.line],
        input=wrapped.word_line,
        capture_output=True,
        check=False,
        env=path,
    )
    if result.returncode in {1, 90} and not result.stdout:
        pytest.skip(f"this machine gives nobody a file system: {result.stderr!r}")
    wrapped.out.add(result.stdout)
    wrapped.err.add(result.stderr)
    with pytest.raises(SetupError, match="the host's disk is full") as error:
        wrapped.read_answer(seconds=0)
    assert error.value.started is False


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_marker_directory_of_another_owner_is_refused(machine: Machine):
    machine.marker_directory.mkdir(mode=0o777)
    os.chown(machine.marker_directory, 65534, 65534)
    with pytest.raises(SetupError):
        machine.run_step(_make_step(machine))
    assert _count_runs(machine) == 0


def test_step_is_not_run_on_a_host_without_timeout(tmp_path: Path):
    programs = tmp_path / "programs"
    programs.mkdir()
    _busybox(programs)
    (programs / "timeout").unlink()
    wrapped = WrappedCommand(Shell(("touch", str(tmp_path / "canary")), marker=STEP))
    ended = subprocess.run(
        [programs / "sh", "-c", wrapped.line.replace(":/usr/local/sbin:/usr/sbin:/sbin", "")],
        input=wrapped.word_line,
        capture_output=True,
        check=False,
        env={"PATH": str(programs), "HOME": str(tmp_path)},
    )
    wrapped.out.add(ended.stdout)
    wrapped.err.add(ended.stderr)
    with pytest.raises(SetupError, match="lacks the program `timeout`"):
        wrapped.read_answer(seconds=0)
    assert not (tmp_path / "canary").exists()
    assert list((tmp_path / ".keyturn").iterdir()) == []


def test_marker_of_a_step_stopped_at_its_deadline_is_a_timeout(host: Machine):
    step = Shell(("sleep", "60"), deadline=1, marker=STEP)
    with pytest.raises(CommandTimeoutError):
        host.run_step(step, seconds=1)
    with pytest.raises(CommandTimeoutError):
        host.query_marker().to_answer(step)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "gone\n",
        "lost - 1.0 - a b - - 0 0\n",
        f"ended - 1.0 {64 * 'f'} a b - - 0 0\n",
        "closed - up - a b - - 0 0\n",
    ],
)
def test_invalid_marker_status_is_a_parse_error(output: str):
    with pytest.raises(ParseError):
        query_step_status(STEP).parse(output)


# --- where it is kept, and by whom ---


def test_marker_does_not_change_the_sudo_command_of_a_step():
    step = Shell(("zpool", "scrub", "tank"), root=True, marker=STEP)
    known = build_inventory("nas1", user="keyturn")["nas1"]
    command = known.resolve(step)
    assert isinstance(command, Shell)
    assert command.words == ("sudo", "-n", "--", "zpool", "scrub", "tank")
    with_mark, without = (
        WrappedCommand(command).line,
        WrappedCommand(replace(command, marker=None)).line,
    )
    assert with_mark.endswith(" sudo -n -- zpool scrub tank")
    assert without.endswith(" sudo -n -- zpool scrub tank")
    assert "sudo" not in STEP_SCRIPT


def _host(**settings: str) -> Inventory:
    known = build_inventory("nas1")
    host = known["nas1"].model_copy(update={"settings": settings})
    return Inventory.model_construct(hosts={"nas1": host})


def test_marker_directory_is_read_from_the_inventory():
    step = Shell(("true",), marker=STEP)

    def mark(**settings: str) -> StepMarker | None:
        command = _host(**settings)["nas1"].resolve(step)
        assert isinstance(command, Shell)
        return command.marker

    assert mark() == STEP
    assert mark(**{"keyturn.marker": "/var/lib/kt/"}) == replace(STEP, directory="/var/lib/kt")
    assert mark(**{"keyturn.marker": "none"}) is None
    with pytest.raises(SettingError, match="must be a directory"):
        mark(**{"keyturn.marker": "kt"})


def test_marker_is_stored_in_the_directory_of_the_inventory(host: Machine):
    place = host.home / "markers here"
    mark = replace(STEP, directory=str(place))
    host.run_step(Shell(("true",), marker=mark))
    assert host.query_marker(mark).state is MarkerState.ENDED
    assert (place / "f00d-7-5f-1").is_dir()
    assert not host.marker_directory.exists()


def test_marker_is_not_queried_on_a_host_without_markers():
    from tests.scripted_fleet import ScriptedFleet

    fleet = ScriptedFleet(inventory=_host(**{"keyturn.marker": "none"}))
    assert fleet.query_step("nas1", STEP) is NO_STATUS
