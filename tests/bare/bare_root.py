"""A bare Debian, with only what debootstrap calls minimal, in namespaces of its own."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.playground.daemon import Daemon, find_program

_DEBOOTSTRAP = "/usr/sbin/debootstrap"
SUITE = "bookworm"
# Each line is said once the namespaces are as they should be.
_IS_UP = "the root is up"
_SCRIPT = f"""
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/run"
echo {_IS_UP}
exec sleep infinity
"""
_PID_FILE = "/run/begun"
# No daemon of a package starts by itself, as in an image of a container.
_POLICY = "#!/bin/sh\nexit 101\n"


def _ask(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _find_mirror() -> str:
    """Return where this machine's apt finds the suite."""
    found = _ask("apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {SUITE}")
    return found.split()[0]


def make_tarball() -> Path:
    """Return a tar of a bare root; made once, and kept outside of the repository."""
    find_program(_DEBOOTSTRAP, package="debootstrap")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "keyturn"
    file = cache / f"{SUITE}-{_ask('dpkg', '--print-architecture').strip()}.tar"
    if file.exists():
        return file
    cache.mkdir(parents=True, exist_ok=True)
    unfinished, new = cache / f"{SUITE}.{os.getpid()}", file.with_suffix(f".{os.getpid()}")
    _ask(_DEBOOTSTRAP, "--variant=minbase", SUITE, str(unfinished), _find_mirror())
    _ask("tar", "--create", "--file", str(new), "--directory", str(unfinished), ".")
    _ask("rm", "-rf", str(unfinished))
    return new.rename(file)


class BareRoot(Daemon):
    """A bare root, whose processes all end with it. Its network is that of this machine."""

    def __init__(self) -> None:
        super().__init__()
        self.root = self.directory / "root"
        self.root.mkdir()
        _ask("tar", "--extract", "--file", str(make_tarball()), "--directory", str(self.root))
        apt = self.root / "etc/apt"
        (apt / "sources.list").write_text(f"deb {_find_mirror()} {SUITE} main\n")
        settings = _ask("apt-config", "dump", "Acquire").splitlines()
        is_needed = ("Acquire::http", "Acquire::Check", "Acquire::Languages")
        (apt / "apt.conf.d/99mirror").write_text(
            "".join(f"{line}\n" for line in settings if line.startswith(is_needed))
        )
        for name in ("resolv.conf", "hosts"):
            (self.root / "etc" / name).write_bytes(Path("/etc", name).read_bytes())
        policy = self.root / "usr/sbin/policy-rc.d"
        policy.write_text(_POLICY)
        policy.chmod(0o755)

    def _choose_ports(self) -> None:
        pass

    def _configure(self) -> list[str]:
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return [*unshare, "sh", "-ec", _SCRIPT, "root", str(self.root)]

    def _answers(self) -> bool:
        return _IS_UP in self._read_log()

    def inside(
        self, *words: str, login: int | None = None, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root.

        login: the user who logged in and became root by sudo since, as the kernel knows them.
        """
        return subprocess.run(
            self._prepare(words, login),
            env=self._build_environment(variables),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def begin(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Begin a command as root, until `end`."""
        keep_pid = f'echo $$ > {_PID_FILE}; exec "$@"'
        return subprocess.Popen(
            self._prepare(("sh", "-ec", keep_pid, "begun", *words), None),
            env=self._build_environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        """Ask what `begin` began to end, as systemd does."""
        self.inside("sh", "-ec", f"kill -TERM $(cat {_PID_FILE})")

    def _prepare(self, words: tuple[str, ...], login: int | None) -> list[str]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        enter = ["nsenter", "--target", children[0], "--mount", "--pid", "--"]
        enter += ["chroot", str(self.root)]
        if login is None:
            return [*enter, *words]
        become = 'echo "$1" > /proc/self/loginuid; shift; exec "$@"'
        return [*enter, "sh", "-ec", become, "login", str(login), *words]

    @staticmethod
    def _build_environment(variables: Mapping[str, str]) -> dict[str, str]:
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            **variables,
        }


class Stopwatch:
    """Says how long each step of a person took."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, step: str) -> None:
        took = time.monotonic() - self._began
        print(f"{took:7.1f} s  {step}", flush=True)
        self._began = time.monotonic()
