"""Every way in which a host runs the scripts of a probation, for real.

With systemd or with cron, sent or installed, by root or by sudo, on dash, busybox and bash. The
machine is a real systemd in namespaces of its own, where another shell is mounted over /bin/sh.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from bot.hosts.sudo_rules import format_install_program, format_sudoers, list_host_sudo_grants
from connectors.command import Shell
from connectors.inventory import Host
from connectors.probation import DRILL, ProbationStatus, query_probation
from connectors.script import SCRIPTS_DIRECTORY
from tests.playground.probation import Probations, wait_until
from tests.playground.systemd import Systemd, explain_missing_support
from tests.scripted_fleet import build_inventory

_MISSING = explain_missing_support()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_MISSING), reason=f"no systemd can be had here: {_MISSING}"),
]
CHANGE = "0123456789abcdef"
# Enough to do something else meanwhile, on a busy machine too.
_SECONDS = 4
_SHELLS = {"dash": "", "busybox": "/usr/bin/busybox", "bash": "/usr/bin/bash"}
Way = Literal["root", "sudo", "sudo installed"]


class Machine:
    """A machine with an own /bin/sh, /etc/sudoers.d and directory of scripts."""

    def __init__(self, systemd: Systemd, directory: Path, shell: str) -> None:
        self._systemd = systemd
        for folder in ("sudoers.d", "scripts"):
            (directory / folder).mkdir(mode=0o755)
        (directory / "sudoers").write_text("@includedir /etc/sudoers.d\n")
        (directory / "sudoers").chmod(0o440)
        self.run("mkdir", "-p", SCRIPTS_DIRECTORY)
        for source, target in (
            (f"{directory}/sudoers", "/etc/sudoers"),
            (f"{directory}/sudoers.d", "/etc/sudoers.d"),
            (f"{directory}/scripts", SCRIPTS_DIRECTORY),
            *(((_SHELLS[shell], "/usr/bin/dash"),) if _SHELLS[shell] else ()),
        ):
            mounted = self.run("mount", "--bind", source, target)
            assert mounted.returncode == 0, mounted.stderr

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self._systemd.run_inside(*words, stdin=stdin)


class ProbationHost:
    """A host of that machine, which has systemd or cron, and a login that is root or uses sudo."""

    def __init__(self, machine: Machine, root: Path, *, way: Way, has_systemd: bool) -> None:
        self._machine, self._way = machine, way
        self.probations = Probations(root)
        self.has_systemd = has_systemd
        if has_systemd:
            (root / "run/systemd/system").mkdir(parents=True)
        self.state = root / "var/lib/keyturn-probation"
        self.unit = root / "etc/systemd/system/keyturn-probation-drill-boot.service"
        self._host = Host.model_validate(
            {
                **{"name": "h1", "address": "192.0.2.1", "area": "infra"},
                "user": "root" if way == "root" else "nobody",
                "scripts": way == "sudo installed",
                "host_key": build_inventory("h1")["h1"].host_key,
                "settings": {**self.probations.settings, "drill.probation": str(_SECONDS)},
            }
        )
        if way != "root":
            self._install_rules()

    def _install_rules(self) -> None:
        if self._way == "sudo installed":
            program = format_install_program(self._host)
        else:
            rules = format_sudoers(self._host, list_host_sudo_grants(self._host))
            program = f"cat >/etc/sudoers.d/keyturn <<'end'\n{rules}end\n"
            program += "chmod 440 /etc/sudoers.d/keyturn"
        done = self._machine.run("sh", stdin=program)
        assert done.returncode == 0, done.stderr

    def run(self, shell: Shell) -> subprocess.CompletedProcess[str]:
        settings = dict(self._host.settings)
        is_sudo = self._way != "root"
        resolved = shell.resolve(settings, sudo=is_sudo, scripts=self._host.scripts)
        login = ("setpriv", "--reuid=nobody", "--clear-groups") if is_sudo else ()
        return self._machine.run(*login, *resolved.words)

    def read_status(self) -> ProbationStatus:
        query = query_probation("drill", DRILL.seconds)
        assert isinstance(query.command, Shell)
        done = self.run(query.command)
        assert done.stderr == ""
        return query.parse(done.stdout)

    def arm(self) -> None:
        done = self.run(DRILL.arm(CHANGE))
        assert done.returncode == 0, done.stderr
        timer = "keyturn-probation-drill.timer" if self.has_systemd else "process "
        assert done.stdout.startswith(
            f"drill is armed: the host restores it in {_SECONDS} s, by {timer}"
        )
        assert self.token == "save\n"

    @property
    def token(self) -> str:
        return (self.state / "drill/token").read_text()

    def lose_timer(self) -> None:
        if self.has_systemd:
            self._machine.run("systemctl", "stop", "keyturn-probation-drill.timer")
        else:
            killed = self._machine.run("sh", "-c", f"kill -KILL $(cat {self.state}/drill/timer)")
            assert killed.returncode == 0, killed.stderr

    def boot(self) -> None:
        """Run the boot hook as in another boot."""
        self.probations.set_end("drill", 10**9, boot="another")
        if self.has_systemd:
            (line,) = (
                line for line in self.unit.read_text().splitlines() if line.startswith("ExecStart")
            )
            words = line.removeprefix("ExecStart=").split()
        else:
            (hook,) = self.probations.hooks.iterdir()
            words = hook.read_text().split()[2:]
        done = self._machine.run(*words)
        assert done.returncode == 0, done.stderr

    def assert_restored(self) -> None:
        status = self.read_status()
        assert (status.restored, status.restore_status, status.armed) == (CHANGE, 0, "")
        assert self.token == "restore\n"
        self.assert_nothing_left()

    def assert_nothing_left(self) -> None:
        wait_until(lambda: not [*self.probations.hooks.iterdir()] and not self.unit.exists())
        listed = ("systemctl", "list-timers", "--all", "--no-legend")
        wait_until(lambda: "keyturn" not in self._machine.run(*listed).stdout)


@pytest.fixture(scope="module", params=_SHELLS)
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    with Systemd({}) as systemd:
        yield Machine(systemd, tmp_path_factory.mktemp("machine"), request.param)


@pytest.fixture
def root() -> Iterator[Path]:
    """Return a directory for what stands for /, which every login may read."""
    with tempfile.TemporaryDirectory(prefix="keyturn-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.mark.parametrize("has_systemd", [True, False], ids=["systemd", "cron"])
@pytest.mark.parametrize("way", ["root", "sudo", "sudo installed"])
def test_probation_is_armed_kept_and_restored_by_timer_and_at_boot_on_every_host(
    machine: Machine, root: Path, way: Way, has_systemd: bool
):
    host = ProbationHost(machine, root, way=way, has_systemd=has_systemd)
    assert host.read_status().lasts == _SECONDS
    # By its timer.
    host.arm()
    assert host.read_status().armed == CHANGE
    wait_until(lambda: not host.probations.is_armed("drill"))
    host.assert_restored()
    # Kept.
    host.arm()
    kept = host.run(DRILL.keep(CHANGE))
    assert (kept.returncode, kept.stdout) == (0, "drill is kept\n"), kept.stderr
    assert host.token == "save\n"
    host.assert_nothing_left()
    assert "nothing is on probation" in host.run(DRILL.keep(CHANGE)).stderr
    # At boot.
    host.arm()
    host.lose_timer()
    host.boot()
    host.assert_restored()


def test_installed_scripts_that_an_upgrade_removes_still_restore(machine: Machine, root: Path):
    host = ProbationHost(machine, root, way="sudo installed", has_systemd=False)
    host.arm()
    machine.run("sh", "-c", f"rm {SCRIPTS_DIRECTORY}/*")
    wait_until(lambda: not host.probations.is_armed("drill"))
    host.assert_restored()


def test_leftover_timer_of_systemd_does_not_keep_the_next_change_from_being_armed(
    machine: Machine, root: Path
):
    host = ProbationHost(machine, root, way="root", has_systemd=True)
    started = machine.run(
        *("systemd-run", "--unit=keyturn-probation-drill", "--on-active=600", "true")
    )
    assert started.returncode == 0, started.stderr
    host.arm()
    assert host.run(DRILL.keep(CHANGE)).returncode == 0
    host.assert_nothing_left()
