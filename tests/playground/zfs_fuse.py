"""A real ZFS in user space: zfs-fuse, with pools on sparse files, in a mount namespace of its own.

Its socket, its list of pools and all mounts are there alone, so that any number of them run side
by side and nothing is left of one that was killed. Needs root and /dev/fuse.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from tests.playground.daemon import PATH, Daemon, find_program

ZFS_FUSE = "/usr/sbin/zfs-fuse"
PACKAGE = "zfs-fuse"

_START = """\
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/zfs /run/lock/zfs
mount -t tmpfs tmpfs /var/lib/zfs
exec "$1" --no-daemon --no-kstat-mount --max-arc-size 16
"""
# A daemon that is slowed down runs for so many seconds, and then rests so many times as long as
# it has had of the processor meanwhile. It only runs while a zpool or zfs waits for it: these hold
# a lock, so that a scan lasts for as many of them on a busy machine as on an idle one.
_RUNS, _RESTS = 0.001, 30


@cache
def explain_missing_support() -> str:
    """Say why this machine cannot have a ZFS in user space, if so."""
    if os.geteuid() != 0:
        return "only root may mount file systems"
    if not Path("/dev/fuse").exists():
        return "the kernel has no /dev/fuse"
    namespace = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "mount namespaces are forbidden here" if namespace.returncode else ""


class ZfsFuse(Daemon):
    """zfs-fuse. Its programs run in its namespace, by `run` or by way of `bin`.

    bin: a directory with a zpool and a zfs that reach it, to stand first in a PATH.
    """

    def __init__(self) -> None:
        self._zfs_fuse = find_program(ZFS_FUSE, package=PACKAGE)
        super().__init__()
        self.bin = self.directory / "bin"

    def run(self, *words: str) -> str:
        """Run a program in its namespace and return what it says."""
        command = self._locked(*self.within(*words))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def within(self, *words: str) -> Sequence[str]:
        """Return the command that runs these words in its namespace."""
        return ("nsenter", f"--mount=/proc/{self.pid}/ns/mnt", *words)

    def disk(self, name: str, *, megabytes: int = 128) -> Path:
        """Return a sparse file to make a pool of; at least 64 MiB."""
        path = self.directory / name
        with path.open("wb") as file:
            file.truncate(megabytes * 1024 * 1024)
        return path

    def pool(self, name: str, *devices: str | Path, small: bool = False) -> None:
        """Make a pool, such as of ("mirror", d0, d1).

        small: of the smallest blocks, so that there are many and a scan has something to do.
        """
        blocks = ("-o", "ashift=9", "-O", "recordsize=512") if small else ()
        where = ("-m", str(self._mountpoint(name)))
        self.run("zpool", "create", *blocks, *where, name, *(str(device) for device in devices))

    def fill(self, pool: str, *, megabytes: int) -> Path:
        """Write a file of noise into a pool; return it as the daemon's namespace has it."""
        path = self._mountpoint(pool) / "noise"
        count = f"count={megabytes}"
        self.run("dd", "if=/dev/urandom", f"of={path}", "bs=1M", count, "status=none")
        self.run("sync", "-f", str(path))
        return path

    def scan(self, pool: str) -> str:
        """Return the line of `zpool status` that tells of the last scan."""
        lines = self.run("zpool", "status", pool).splitlines()
        return next(line.removeprefix(" scrub: ") for line in lines if line[:8] == " scrub: ")

    def damage(self, disk: Path, *, megabytes: tuple[int, int]) -> None:
        """Overwrite a stretch of a disk behind the back of ZFS; its labels lie at both ends."""
        begin, end = megabytes
        with disk.open("r+b") as file:
            file.seek(begin * 1024 * 1024)
            file.write(os.urandom((end - begin) * 1024 * 1024))

    @contextlib.contextmanager
    def slow(self) -> Generator[None]:
        """Let it have little of the processor, so that what takes no time takes some."""
        over = threading.Event()
        throttle = threading.Thread(target=self._throttle, args=(over,))
        throttle.start()
        try:
            yield
        finally:
            over.set()
            throttle.join()

    def _throttle(self, over: threading.Event) -> None:
        # On a busy machine this thread would come too late, and what it holds back would be done.
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        # Whatever it uses outside the wait below, because this thread is late, is counted too.
        counted = self._processor_time()
        with self._lock.open() as lock:
            while not over.is_set():
                over.wait(_RUNS)
                os.kill(self.pid, signal.SIGSTOP)
                used = self._processor_time()
                over.wait(_RESTS * (used - counted))
                counted = used
                while not over.is_set() and _is_free(lock):
                    over.wait(_RUNS)
                os.kill(self.pid, signal.SIGCONT)

    def _processor_time(self) -> float:
        # The kernel's number for the clock of another process, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime((~self.pid << 3) | 2)

    @property
    def _lock(self) -> Path:
        """The file that each zpool and zfs locks while it runs."""
        return self.directory / "lock"

    def _locked(self, *words: str) -> Sequence[str]:
        """Return the command that holds the lock while these words run."""
        return ("flock", "--no-fork", "--shared", str(self._lock), *words)

    def _mountpoint(self, pool: str) -> Path:
        return self.directory / "mnt" / pool

    def _choose_ports(self) -> None:
        """It has none."""

    def _configure(self) -> list[str]:
        (self.directory / "mnt").mkdir(exist_ok=True)
        own = ("unshare", "--mount", "--propagation", "private")
        # The directory stands among the words so that the sweep knows its own.
        return [*own, "sh", "-c", _START, str(self.directory), self._zfs_fuse]

    def _answers(self) -> bool:
        done = subprocess.run(
            self.within("zpool", "list"), capture_output=True, check=False, timeout=10
        )
        return done.returncode == 0

    def launch(self) -> None:
        super().launch()
        self.bin.mkdir(exist_ok=True)
        self._lock.touch()
        for name in ("zpool", "zfs"):
            script = self.bin / name
            command = " ".join(self._locked(*self.within(f"/sbin/{name}")))
            script.write_text(f'#!/bin/sh\nPATH={PATH}\nexec {command} "$@"\n')
            script.chmod(0o755)


def _is_free(lock: IO[str]) -> bool:
    """Return whether no process has the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True
