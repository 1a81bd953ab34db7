"""Ends every process that belongs to a playground directory.

As a script (`python sweep.py DIRECTORY`) it is the guard of one Python process: it reads standard
input, whose other end only its owner holds, and at end of file sweeps and removes the directory.
So nothing is left behind even by an owner that was killed. PR_SET_PDEATHSIG would not do: it fires
when the *thread* ends that started the daemon, and what the daemon starts does not inherit it.
Only the standard library is imported, so that the guard starts in a few milliseconds.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

DIRECTORY_VARIABLE = "KEYTURN_PLAYGROUND"
PID_FILE = "pid"
_ENOUGH = 1 << 16
# See PF_KTHREAD in the kernel's sched.h.
_OF_THE_KERNEL = 0x00200000


def kill_processes(*directories: Path, seconds: float = 10.0) -> list[int]:
    """Kill all that belongs to these; return the process ids that outlived the deadline."""
    end = time.monotonic() + seconds
    while alive := find_processes(*directories):
        for pid in alive:
            _kill(pid)
        if time.monotonic() > end:
            return alive
        time.sleep(0.002)
    return []


def find_processes(*directories: Path) -> list[int]:
    """Return what runs for these: by their pid files, by the mark, and all their descendants.

    The mark alone is not enough: sshd paints its title over its environment.
    """
    parents = dict(_parents())
    pids = {pid for one in directories for pid in _pids_on_file(one) if pid in parents}
    marks = [os.fsencode(f"{DIRECTORY_VARIABLE}={one}") for one in directories]
    pids |= {pid for pid in parents if _marked(pid, marks)}
    while more := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return sorted(pids - {os.getpid()})


def _parents() -> Iterator[tuple[int, int]]:
    """Yield each process with its parent; the dead who wait to be buried do not count.

    Nor do threads of the kernel, which have no environment.
    """
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            stat = _read(f"{entry.path}/stat").rpartition(b") ")[2].split(maxsplit=7)
            if stat and stat[0] not in (b"Z", b"X") and not int(stat[6]) & _OF_THE_KERNEL:
                yield int(entry.name), int(stat[1])


def _pids_on_file(directory: Path) -> Iterator[int]:
    for file in (*directory.glob(PID_FILE), *directory.glob(f"*/{PID_FILE}")):
        pid = _read(str(file)).decode().strip()
        # The number may have gone to another process since: ours have their directory in argv.
        if pid.isdigit() and os.fsencode(file.parent) in _read(f"/proc/{pid}/cmdline"):
            yield int(pid)


def _marked(pid: int, marks: list[bytes]) -> bool:
    environment = _read(f"/proc/{pid}/environ")
    # Most have none, and every test that ends a daemon asks for all of them.
    if os.fsencode(DIRECTORY_VARIABLE) not in environment:
        return False
    words = environment.split(b"\0")
    return any(word == mark or word.startswith(mark + b"/") for word in words for mark in marks)


def _read(path: str) -> bytes:
    # Without all that open() does for files that are read for long: there are thousands.
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it ended meanwhile, or it is not ours to look at
        return b""
    content = b""
    try:
        while more := os.read(file, _ENOUGH):
            content += more
    except OSError:
        return b""
    finally:
        os.close(file)
    return content


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _guard(directory: Path) -> None:
    sys.stdin.buffer.read()
    kill_processes(directory)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
