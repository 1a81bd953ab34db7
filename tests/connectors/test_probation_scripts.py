"""The scripts of a probation on real shells, killed after each of their commands.

Whatever kills them, the host has either what was or the change, recovery can tell which, and the
next change can be made.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from connectors.command import Setting, Shell
from connectors.probation import Probation, ProbationStatus, query_probation
from connectors.script import Script, join_lines, load_code, load_script
from tests.campaigns import CHAOS
from tests.playground.probation import Probations, wait_until

pytestmark = pytest.mark.real

CHANGE, NEXT = "0123456789abcdef", "fedcba9876543210"
_SHELLS = ("dash", "busybox", "bash")
# `make test` tries each third command on dash; `make chaos` tries each on each.
_AT_ONCE = 8
# A change sets the file to something else.
_RESTORE = Script(
    "toy-restore",
    'case $1 in save) cp "$2" value;; restore) echo $1 >>log; cp value "$2";; *) exit 1;; esac',
    argument_count=2,
)


class ToyHost:
    """A root directory, with cron and without systemd, and commands run by one shell."""

    def __init__(self, root: Path, programs: Path) -> None:
        root.mkdir()
        self.probations = Probations(root)
        self.file = root / "file"
        self.file.write_text("before")
        self.state = root / "var/lib/keyturn-probation"
        self._path = f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            env={"PATH": self._path, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def arm(self, change: str, *, arm: str = "") -> subprocess.CompletedProcess[str]:
        """Run the script that arms, or other text instead of it."""
        words = _resolve(self, make_probation(self.file).arm(change))
        if arm:
            words[2] = f"{{ {arm}; }}"
        return self.run(*words)

    def keep(self, change: str, *, keep: str = "") -> subprocess.CompletedProcess[str]:
        words = _resolve(self, make_probation(self.file).keep(change))
        if keep:
            words[2] = f"{{ {keep}; }}"
        return self.run(*words)

    def read_status(self) -> ProbationStatus:
        query = query_probation("toy")
        assert isinstance(query.command, Shell)
        return query.parse(self.run(*_resolve(self, query.command)).stdout)

    def boot(self) -> None:
        """Run the boot hooks as in another boot, with the script as it should be."""
        if self.probations.is_armed("toy"):
            self.probations.set_end("toy", 10**9, boot="another")
        for hook in self.probations.hooks.iterdir():
            when, user, *words = hook.read_text().split()
            assert (when, user, words[0]) == ("@reboot", "root", "/bin/sh")
            self.mend_expire()
            self.run("sh", *words[1:])

    def expire(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run what the timer runs, with other text."""
        (self.state / "toy/expire").write_text(script)
        return self.run("sh", str(self.state / "toy/expire"), str(self.probations.root), "toy")

    def mend_expire(self) -> None:
        if (self.state / "toy/expire").exists():
            (self.state / "toy/expire").write_text(load_script("probation-expire").text)

    def count_restores(self) -> int:
        log = self.state / "toy/log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def end(self) -> None:
        """See every process of the timer end."""
        timer = self.state / "toy/timer"
        if timer.exists() and timer.read_text():
            process = Path("/proc", timer.read_text().strip())
            wait_until(lambda: not process.exists())


@pytest.fixture(scope="module", params=_SHELLS)
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with one shell as `sh`; with busybox, also with its other programs."""
    shell: str = request.param
    directory = tmp_path_factory.mktemp("programs") / shell
    directory.mkdir()
    names = ["sh"]
    if shell == "busybox":
        names = subprocess.check_output(["busybox", "--list"], text=True).split()
    for name in {*names} - {"sync", "sleep"}:
        (directory / name).symlink_to(shutil.which(shell) or "")
    # `sync` would write every file system of this machine, and waiting need not take so long.
    for name, line in {"sync": "", "sleep": "exec /usr/bin/sleep 0.05"}.items():
        (directory / name).write_text(f"#!/usr/bin/dash\n{line}\n")
        (directory / name).chmod(0o755)
    return directory


def make_probation(file: Path) -> Probation:
    return Probation("toy", _RESTORE, Setting("toy.probation", "600"), (str(file),))


def _resolve(host: ToyHost, shell: Shell) -> list[str]:
    return list(shell.resolve(host.probations.settings, sudo=False).words)


def list_killed_scripts(name: str) -> list[str]:
    """Return the script, each time with another command after which it is killed."""
    lines = load_code(name).splitlines()
    variants: list[str] = []
    for place, before in enumerate(lines):
        if before.endswith(("\\", "|", "&&")):
            continue
        killed = [*lines[: place + 1], "kill -KILL $$", *lines[place + 1 :]]
        try:
            line = join_lines("\n".join(killed))
        except ValueError:
            continue
        if line not in variants and is_valid(line):
            variants.append(line)
    return variants


def is_valid(line: str) -> bool:
    return not subprocess.run(["dash", "-nc", line], capture_output=True, check=False).returncode


def assert_next_change_works(host: ToyHost) -> None:
    host.file.write_text("before")
    armed = host.arm(NEXT)
    assert armed.returncode == 0, armed.stderr
    assert host.read_status().armed == NEXT
    host.file.write_text("after")
    kept = host.keep(NEXT)
    assert kept.returncode == 0, kept.stderr
    assert host.file.read_text() == "after"
    assert not host.probations.is_armed("toy")
    assert list(host.probations.hooks.iterdir()) == []
    host.end()


def check_arming(host: ToyHost, script: str) -> bool:
    done = host.arm(CHANGE, arm=script)
    # Keyturn changes nothing when arming fails.
    if is_killed := done.returncode == -signal.SIGKILL:
        status = host.read_status()
        if not status.armed and not status.restored:
            assert not host.probations.is_armed("toy")
        else:
            host.probations.let_time_run_out("toy")
            assert host.read_status().restored == CHANGE
    else:
        assert done.returncode == 0, done.stderr
        host.probations.let_time_run_out("toy")
    host.end()
    assert host.file.read_text() == "before"
    assert_next_change_works(host)
    return is_killed


def check_keeping(host: ToyHost, script: str) -> bool:
    assert host.arm(CHANGE).returncode == 0
    host.file.write_text("after")
    done = host.keep(CHANGE, keep=script)
    if host.read_status().armed:
        host.probations.let_time_run_out("toy")
        assert host.read_status().restored == CHANGE
        assert host.file.read_text() == "before"
    else:
        assert host.file.read_text() == "after"
    host.boot()
    host.end()
    assert host.file.read_text() == ("before" if host.read_status().restored else "after")
    assert_next_change_works(host)
    return done.returncode == -signal.SIGKILL


def check_expiring(host: ToyHost, script: str) -> bool:
    assert host.arm(CHANGE).returncode == 0
    host.file.write_text("after")
    os.kill(host.probations.get_timer("toy"), signal.SIGKILL)
    host.probations.set_end("toy", 0)
    done = host.expire(script)
    was_restored = host.read_status().restored == CHANGE
    count = host.count_restores()
    host.boot()
    assert host.read_status().restored == CHANGE
    assert not host.probations.is_armed("toy")
    assert list(host.probations.hooks.iterdir()) == []
    assert host.file.read_text() == "before"
    assert not was_restored or host.count_restores() == count
    return done.returncode == -signal.SIGKILL


def check_making_up(host: ToyHost, script: str) -> bool:
    """The next change makes up for a timer that was killed, without a restart."""
    assert host.arm(CHANGE).returncode == 0
    host.file.write_text("after")
    os.kill(host.probations.get_timer("toy"), signal.SIGKILL)
    host.probations.set_end("toy", 0)
    done = host.expire(script)
    host.mend_expire()
    assert host.arm(NEXT).returncode == 0
    assert host.file.read_text() == "before"
    assert host.read_status().armed == NEXT
    assert host.keep(NEXT).returncode == 0
    host.end()
    assert_next_change_works(host)
    return done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("programs", _SHELLS if CHAOS else _SHELLS[:1], indirect=True)
@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("probation-arm", check_arming),
        ("probation-keep", check_keeping),
        ("probation-expire", check_expiring),
        ("probation-expire", check_making_up),
    ],
)
def test_probation_script_killed_after_any_command_leaves_a_host_that_recovery_understands(
    tmp_path: Path, programs: Path, name: str, check: Callable[[ToyHost, str], bool]
):
    scripts = list_killed_scripts(name)[:: 1 if CHAOS else 3]
    hosts = [ToyHost(tmp_path / str(number), programs) for number, _ in enumerate(scripts)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        killed = [*pool.map(check, hosts, scripts)]
    # Some commands are in branches that are not taken.
    assert killed.count(True) > len(scripts) // 2


def test_change_that_makes_up_for_a_lost_timer_is_armed_under_its_own_name(
    tmp_path: Path, programs: Path
):
    host = ToyHost(tmp_path / "host", programs)
    assert host.arm(CHANGE).returncode == 0
    os.kill(host.probations.get_timer("toy"), signal.SIGKILL)
    host.probations.set_end("toy", 0)
    assert_next_change_works(host)
