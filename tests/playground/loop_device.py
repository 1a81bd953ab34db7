"""A real block device over a file: a loop device that is removed when its owner ends."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.playground.daemon import find_program

LOSETUP = "/usr/sbin/losetup"
_LOCK = Path(tempfile.gettempdir()) / "keyturn-loop.lock"


def explain_missing_support() -> str:
    """Tell why there can be no loop device here; "" if there can."""
    if os.geteuid() != 0:
        return "only root may make loop devices"
    return "" if Path("/dev/loop-control").exists() else "this kernel has no loop devices"


@contextmanager
def loop_device(*, megabytes: int = 32) -> Generator[str]:
    """Yield the name of a loop device with a scheduler that everybody finds as it was before.

    Others on this machine may make some too, so finding a free one is done one after another.
    """
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        file.truncate(megabytes * 1024 * 1024)
        with _LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = _losetup("--find", "--show", file.name)
            holder = os.open(path, os.O_RDONLY)
            # A device in use is only let go once nobody has it open: whatever ends this process
            # frees the device too.
            _losetup("--detach", path)
        name = Path(path).name
        queue = Path(f"/sys/block/{name}/queue")
        before = {each: (queue / each).read_text() for each in ("scheduler", "read_ahead_kb")}
        try:
            yield name
        finally:
            chosen = before["scheduler"].partition("[")[2].partition("]")[0] or "none"
            (queue / "scheduler").write_text(chosen)
            (queue / "read_ahead_kb").write_text(before["read_ahead_kb"])
            os.close(holder)


def _losetup(*words: str) -> str:
    command = [find_program(LOSETUP, package="mount"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
