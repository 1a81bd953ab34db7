"""A real systemd as the first process of namespaces of its own, with a few units of ours."""

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from connectors.command import NO_HOOKS, Answer, RunHooks, Shell
from connectors.inventory import Host
from tests.playground.daemon import PATH, Daemon, find_program

_SYSTEMD = "/lib/systemd/systemd"
_CGROUPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup"))

# It takes the environment's `container` for a reason not to touch the machine. /run is new, and
# the kernel's settings can only be read.
_SCRIPT = (
    """
unit_path=$1; shift
for group; do echo $$ > "$group/cgroup.procs" || exit 1; done
export unit_path
exec unshare --pid --mount --cgroup --uts --ipc --kill-child --fork --mount-proc sh -ec '
    mount -t tmpfs tmpfs /run
    mount --bind /proc/sys /proc/sys
    mount -o remount,bind,ro /proc/sys
    mkdir /run/lock
    exec env container=keyturn SYSTEMD_UNIT_PATH="$unit_path" \
        """
    + _SYSTEMD
    + """ --system --unit=ours.target --log-target=console
'
"""
)

_TARGET = "[Unit]\nDescription=Ours\nDefaultDependencies=no\n"
# What systemd wants to have, whatever its units are.
_WANTED = ("sysinit.target", "basic.target", "shutdown.target")


@cache
def explain_missing_support() -> str:
    """Return why no systemd can run here; "" if one can."""
    if os.geteuid() != 0:
        return "only root may make the namespaces"
    tried = subprocess.run(
        ["unshare", "--pid", "--mount", "--cgroup", "--fork", "--mount-proc", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        return tried.stderr.strip()
    return "" if _writable() else "no control group can be made"


def _writable() -> list[Path]:
    return [
        group
        for group in _CGROUPS
        if (group / "cgroup.procs").exists() and os.access(group / "cgroup.procs", os.W_OK)
    ]


class Systemd(Daemon):
    """A systemd that knows nothing but *units*: the text of each, by its file's name.

    A unit of no text is masked. Default dependencies are switched off in each.
    It runs commands as a fleet's sessions do, inside of its namespaces.
    """

    def __init__(self, units: Mapping[str, str]) -> None:
        find_program(_SYSTEMD, package="systemd")
        super().__init__()
        self.units = self.directory / "units"
        self.units.mkdir()
        for name in _WANTED:
            (self.units / name).write_text(_TARGET)
        (self.units / "ours.target").write_text(_TARGET)
        for name, text in units.items():
            self.write(name, text)
        self._groups = [group / self.directory.name for group in _writable()]

    def write(self, name: str, text: str) -> None:
        if text:
            whole = text.replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n", 1)
            (self.units / name).write_text(whole)
        else:
            (self.units / name).symlink_to("/dev/null")

    def systemctl(self, *words: str) -> str:
        done = self._inside("systemctl", *words)
        return (done.stdout + done.stderr).decode()

    def run(
        self,
        host: Host,  # noqa: ARG002 - there is only this one
        command: object,
        /,
        *,
        through: tuple[Host, ...] = (),  # noqa: ARG002 - and it is reached through nobody
        hooks: RunHooks = NO_HOOKS,  # noqa: ARG002 - nothing listens
    ) -> Answer:
        assert isinstance(command, Shell)
        done = self._inside(*command.words)
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def begin(self, *_: object, through: tuple[Host, ...] = ()) -> None:
        """Begin nothing that is not waited for."""

    def close(self) -> None:
        super().close()
        for group in self._groups:
            # Deepest first; what ran in them is gone.
            for path in sorted(group.glob("**/"), reverse=True):
                path.rmdir()

    def _choose_ports(self) -> None:
        pass

    def _configure(self) -> list[str]:
        for group in self._groups:
            group.mkdir(exist_ok=True)
        groups = [str(group) for group in self._groups]
        return ["sh", "-c", _SCRIPT, "keyturn", str(self.units), *groups]

    def _answers(self) -> bool:
        state = self._inside("systemctl", "is-active", "ours.target")
        return state.stdout == b"active\n"

    def run_inside(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = self._inside(*words, stdin=stdin.encode())
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def _inside(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command beside the first process; it is the child of `unshare`."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        first = children[0] if children else "0"
        return subprocess.run(
            ["nsenter", "--target", first, "--pid", "--mount", "--cgroup", "--", *words],
            env={"PATH": PATH, "LC_ALL": "C"},
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
