"""A probation on a host with systemd: its scripts run here, with stand-ins for systemd's programs.

systemd checks their arguments as far as it can without running them:
`systemd-analyze` reads the unit, and the options are those of systemd-run(1).
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from connectors.command import Shell
from connectors.probation import DRILL, query_probation

CHANGE = "0123456789abcdef"
_PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >>"$LOG"
[ "${0##*/} $2" != "systemctl is-active" ] || exit "$INACTIVE"
"""


class Host:
    """A root directory as systemd has it, and programs that write down what they are told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("run/systemd/system", "etc/cron.d", "programs"):
            (root / folder).mkdir(parents=True)
        for name in ("systemd-run", "systemctl", "logger"):
            program = root / "programs" / name
            program.write_text(_PROGRAM)
            program.chmod(0o755)
        self.log = root / "log"
        self.log.touch()
        self.state = root / "var/lib/keyturn-probation"
        self.inactive = 0

    def run(self, shell: Shell) -> subprocess.CompletedProcess[str]:
        words = shell.resolve({"probation.root": str(self.root)}, sudo=False).words
        return self.run_words(*words)

    def run_words(self, *words: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.root}/programs:/usr/bin:/bin"
        environment = {"PATH": path, "LOG": str(self.log), "INACTIVE": str(self.inactive)}
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False, timeout=30
        )

    @property
    def unit(self) -> Path:
        return self.root / "etc/systemd/system/keyturn-probation-drill-boot.service"

    def read_log(self, program: str) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [line.removeprefix(f"{program} ") for line in lines if line.startswith(program)]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_probation_starts_a_systemd_timer_and_a_unit_that_restores_at_boot(host: Host):
    done = host.run(DRILL.arm(CHANGE))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("by keyturn-probation-drill.timer\n")
    script = f"/bin/sh {host.state}/drill/expire {host.root} drill"
    assert host.read_log("systemd-run") == [
        "--quiet --collect --unit=keyturn-probation-drill --on-active=90 "
        f"--timer-property=AccuracySec=1s {script}"
    ]
    assert f"ExecStart={script}\n" in host.unit.read_text()
    wanted = host.unit.parent / "multi-user.target.wants" / host.unit.name
    assert wanted.resolve() == host.unit
    assert list((host.root / "etc/cron.d").iterdir()) == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_analyze_verifies_the_probation_unit(host: Host):
    host.run(DRILL.arm(CHANGE))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(host.unit)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    mine = [line for line in done.stderr.splitlines() if host.unit.name in line]
    assert (mine, done.returncode) == ([], 0), done.stderr


@pytest.mark.parametrize("is_boot", [False, True])
def test_probation_restores_and_removes_its_units_by_timer_or_at_boot(host: Host, is_boot: bool):
    host.run(DRILL.arm(CHANGE))
    armed = host.state / "drill.armed"
    change, until, boot = armed.read_text().split()
    # Due, or armed in another boot.
    armed.write_text(f"{change} {until} another\n" if is_boot else f"{change} 0 {boot}\n")
    command = host.read_log("systemd-run")[0].partition("AccuracySec=1s ")[2]
    assert host.run_words(*command.split()).returncode == 0
    status = query_probation("drill")
    assert isinstance(status.command, Shell)
    parsed = status.parse(host.run(status.command).stdout)
    assert (parsed.restored, parsed.restore_status, parsed.armed) == (CHANGE, 0, "")
    assert not host.unit.exists()
    assert host.read_log("systemctl")[-1] == "--quiet stop keyturn-probation-drill.timer"


def test_confirmed_probation_stops_the_systemd_timer(host: Host):
    host.run(DRILL.arm(CHANGE))
    done = host.run(DRILL.keep(CHANGE))
    assert (done.returncode, done.stdout) == (0, "drill is kept\n")
    assert host.read_log("systemctl")[-1] == "--quiet stop keyturn-probation-drill.timer"
    assert not host.unit.exists()


def test_probation_is_not_armed_when_the_systemd_timer_does_not_run(host: Host):
    host.inactive = 3
    done = host.run(DRILL.arm(CHANGE))
    assert done.returncode != 0
    assert "could not be armed: its timer does not run" in done.stderr
    assert not (host.state / "drill.armed").exists()
    assert not host.unit.exists()
