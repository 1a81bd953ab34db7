"""A real daemon that lives in a directory of its own and never outlives this Python process."""

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

from tests.playground import stray_processes

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProgramMissing(RuntimeError):
    """A program that the playground needs is not installed."""


class DaemonDidNotStart(RuntimeError):
    """A daemon ended, or did not answer in time; the message holds the end of its log."""


def find_program(path: str, *, package: str) -> str:
    """Return *path* if it is there, else name the Debian package that brings it."""
    if not os.access(path, os.X_OK):
        raise ProgramMissing(f"{path} is missing: install the Debian package {package}")
    return path


@cache
def root(within: str = "/tmp") -> Path:
    """Return the directory of all daemons of this process, guarded until the process ends.

    Its path is short, because the path of a Unix socket has at most 107 bytes.
    """
    directory = Path(tempfile.mkdtemp(prefix="kt-", dir=within))
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", stray_processes.__file__, str(directory)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for its owner; it comes after
    )
    atexit.register(guard.communicate)
    return directory


def find_free_port(address: str) -> int:
    """Return a TCP port that nobody holds just now; whoever binds it must be ready to lose it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


class Daemon(ABC):
    """A daemon with its directory, its process and its log. Subclasses say how it starts.

    `launch` and `ready` are apart so that many daemons can start at the same time without threads.
    `stop` leaves the directory, so that `start` brings the same daemon back at the same ports;
    `close` removes it too. within: where its directory is made.
    """

    def __init__(self, *, within: str = "/tmp") -> None:
        self.directory = Path(
            tempfile.mkdtemp(prefix=f"{type(self).__name__.lower()}-", dir=root(within))
        )
        self._log = self.directory / "log"
        self._log.touch()
        self._log_begins = 0
        self._settled = False
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _choose_ports(self) -> None:
        """Take ports that are free now; not asked once the ports are settled."""

    @abstractmethod
    def _configure(self) -> list[str]:
        """Write the configuration; return the command."""

    @abstractmethod
    def _answers(self) -> bool:
        """Tell whether the daemon is up."""

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        self._log_begins = self._log.stat().st_size
        if not self._settled:
            self._choose_ports()
        command = self._configure()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    "PATH": PATH,
                    "LC_ALL": "C.UTF-8",
                    stray_processes.DIRECTORY_VARIABLE: str(self.directory),
                },
                start_new_session=True,
            )
        (self.directory / stray_processes.PID_FILE).write_text(f"{self._process.pid}\n")

    def ready(self, *, seconds: float = 15.0) -> Self:
        """Wait until the daemon answers; on other ports if somebody else was quicker to take them.

        Once it has answered its ports are settled: others know them.
        """
        end = time.monotonic() + seconds
        while not self._comes_up(end):
            self.stop()
            if self._settled or time.monotonic() > end or "in use" not in self._read_log():
                log = self._read_log()[-2000:]
                raise DaemonDidNotStart(f"{type(self).__name__} did not start: {log}")
            self.launch()
        self._settled = True
        return self

    def start(self) -> Self:
        self.launch()
        return self.ready()

    def stop(self) -> None:
        """End the daemon and all that it started, at once."""
        _end(self.directory)
        self.bury()

    def bury(self) -> None:
        """Take note that the process has ended."""
        if self._process is not None:
            self._process.wait(timeout=10)
            self._process = None

    def close(self) -> None:
        """Stop, and remove all files."""
        self.stop()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _comes_up(self, end: float) -> bool:
        while self.running and time.monotonic() < end:
            if self._answers():
                return True
            time.sleep(0.002)
        return False

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The daemon's process id, for a test that wants to freeze or to kill it."""
        if self._process is None:
            raise RuntimeError(f"{type(self).__name__} is not running")
        return self._process.pid

    def processes(self) -> list[int]:
        """Return the ids of the daemon and of all that it started, programs of logins too."""
        return stray_processes.find_processes(self.directory)

    def log(self) -> str:
        """Return all that the daemon has written so far."""
        return self._log.read_text(encoding="utf-8", errors="backslashreplace")

    def _read_log(self) -> str:
        """Return what it wrote since it was last launched."""
        return self._log.read_bytes()[self._log_begins :].decode(errors="backslashreplace")


def close_all(daemons: Sequence[Daemon]) -> None:
    """Close daemons that are ended like any other: one look at all processes finds theirs."""
    _end(*(one.directory for one in daemons))
    for one in daemons:
        one.bury()
        shutil.rmtree(one.directory, ignore_errors=True)


def _end(*directories: Path) -> None:
    left = stray_processes.kill_processes(*directories)
    if left:
        raise RuntimeError(f"these processes could not be ended: {left}")
