"""Other SSH clients that run the same command on the same hosts.

They are installed into a directory of their own, which is not tracked, and are asked one round at
a time, so that they take turns with us. Go only where it is on the machine.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.farm import Farm

_HERE = Path(__file__).parent
# A quick run asks the first of them.
_PACKAGES = ("asyncssh", "fabric", "parallel-ssh", "ansible-core")
_GO = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go")
_TRIES = 3
_MODULE = "golang.org/x/crypto/ssh"


class PeerFailed(Exception):
    """A peer did not have the line run on every host. The message says which, and how it ended."""


@dataclass(frozen=True)
class Round:
    """Seconds of one round over all hosts; warm: the median of three over open connections.

    cpu: of the client, for each command of these. one: of single commands over one of them, where
    that was measured. first: over open connections, right after a start, for ours.
    """

    cold: float
    warm: float
    cpu: float
    one: list[float] = field(default_factory=list[float])
    first: float = 0


@dataclass(frozen=True)
class Peers:
    """Where they were installed. go: the program that was built, None without Go."""

    place: Path
    go: Path | None

    def all(self, farm: Farm, line: str, *, quick: bool) -> dict[str, Callable[[], Round]]:
        """Return what runs one round of each, by its name."""
        peers: dict[str, Callable[[], Round]] = {}
        if self.go is not None:
            go = self.go
            peers["Go x/crypto/ssh"] = lambda: _run_peer([str(go), *_told_to(farm, line)])
        for name in ("paramiko", "asyncssh", *(() if quick else ("fabric", "parallel-ssh"))):
            peers[name] = lambda name=name: self._script(name, farm, line)
        peers["OpenSSH, ControlMaster, xargs -P 32"] = lambda: self._openssh(farm, line)
        if not quick:
            peers["Ansible raw, forks 50"] = lambda: self._ansible(farm, line)
        return peers

    def _script(self, name: str, farm: Farm, line: str) -> Round:
        # paramiko is measured as it is installed for us: another version would be another peer.
        python = sys.executable if name == "paramiko" else str(self.place / "venv/bin/python")
        script = f"{name.replace('-', '_')}_peer.py"
        return _run_peer([python, str(_HERE / script), *_told_to(farm, line)])

    def _openssh(self, farm: Farm, line: str) -> Round:
        sockets = self.place / "s"
        shutil.rmtree(sockets, ignore_errors=True)
        sockets.mkdir()
        options = (
            "-F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
            f"-o LogLevel=ERROR -o ControlMaster=auto -o ControlPersist=60 -i {farm.key} "
            f"-o ControlPath={sockets}/%C"
        )
        places = "\n".join(f"-p {one.split(':')[1]} {one.split(':')[0]}" for one in farm.places())
        command = ["xargs", "-P", "32", "-L", "1", "sh", "-c", f'ssh {options} "$@" "$LINE"', "-"]
        timed = _twice(command, places, {**os.environ, "LINE": line}, len(farm.places()))
        for one in sockets.iterdir():
            subprocess.run(
                ["ssh", "-F", "none", "-o", f"ControlPath={one}", "-O", "exit", "x"],
                check=False,
                capture_output=True,
            )
        return timed

    def _ansible(self, farm: Farm, line: str) -> Round:
        inventory = self.place / "inventory.ini"
        rows = [
            f"h{n} ansible_host={place.split(':')[0]} ansible_port={place.split(':')[1]}"
            for n, place in enumerate(farm.places())
        ]
        inventory.write_text("\n".join(rows) + "\n")
        shutil.rmtree(self.place / "cp", ignore_errors=True)
        command = [
            *(str(self.place / "venv/bin/ansible"), "all", "-i", str(inventory), "-f", "50"),
            *("-u", farm.servers[0].user, "--private-key", str(farm.key), "-m", "raw"),
            # What begins with a brace Ansible takes for JSON.
            *("-a", f"{line[0]}{{% raw %}}{line[1:]}{{% endraw %}}"),
        ]
        env = {
            **os.environ,
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.place / "cp"),
            "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=60s",
        }
        return _twice(command, "", env, len(rows))


def installed(place: Path, *, quick: bool = False) -> Peers:
    """Install what is not there yet. quick: only what a quick run asks."""
    done = place / "venv/done"
    wanted = _PACKAGES[:1] if quick else _PACKAGES
    if not done.exists() or not {*wanted} <= {*done.read_text().split()}:
        venv.create(place / "venv", with_pip=True)
        pip = [str(place / "venv/bin/pip"), "--disable-pip-version-check", "install", "-q"]
        subprocess.run([*pip, *wanted], check=True)
        done.write_text(" ".join(wanted))
    return Peers(place, _go(place / "go"))


def _go(place: Path) -> Path | None:
    go = shutil.which("go") or next((path for path in _GO if Path(path).exists()), None)
    if go is None:
        return None
    built = place / "fan"
    if not built.exists() or (place / "main.go").read_text() != (_HERE / "main.go").read_text():
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(_HERE / "main.go", place)
        env = {**os.environ, "GOPATH": f"{place}/path", "GOCACHE": f"{place}/cache"}
        env["GOFLAGS"] = "-buildvcs=false -modcacherw"
        (place / "go.mod").write_text("module fan\n\ngo 1.22\n")
        for words in (["get", _MODULE], ["build", "-o", "fan", "."]):
            done = subprocess.run([go, *words], cwd=place, env=env, check=False)
            if done.returncode != 0:
                return None
    return built


def _told_to(farm: Farm, line: str) -> list[str]:
    return [farm.servers[0].user, str(farm.key), line, *farm.places()]


def _run_peer(command: list[str]) -> Round:
    """Run a peer for a round; one that fails is asked again."""
    name = Path(command[1] if command[1].endswith(".py") else command[0]).name
    for _ in range(_TRIES):
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            return Round(**json.loads(done.stdout))
        print(f"{name} failed with status {done.returncode}", file=sys.stderr)
    raise PeerFailed(f"{name} failed {_TRIES} times")


def _twice(command: list[str], given: str, env: dict[str, str], count: int) -> Round:
    took: list[float] = []
    cpu = 0.0
    for _ in range(2):
        began, before = time.perf_counter(), os.times()
        done = subprocess.run(
            command, input=given, env=env, text=True, check=False, capture_output=True
        )
        if done.returncode != 0:
            # Ansible tells on its output of the hosts that it did not reach.
            unreachable = [line for line in done.stdout.splitlines() if "UNREACHABLE" in line][:3]
            name = Path(command[0]).name
            raise PeerFailed(
                f"{name} failed with status {done.returncode}: {' '.join(unreachable)}"
            )
        after = os.times()
        took.append(time.perf_counter() - began)
        cpu = after.children_user + after.children_system
        cpu -= before.children_user + before.children_system
    return Round(took[0], took[1], cpu / count)
