"""Runs a `keyturn` command as a person types it, with the data and policy of a test."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

Typed = subprocess.CompletedProcess[str]


def run_keyturn(place: Path, *words: str, **more: str) -> Typed:
    """Type it. place: holds the folders `var` and `policy`. more: of the environment."""
    return run_command(words, env=os.environ | _build_environment(place) | more)


def run_keyturn_with_policy(policy: Path, *words: str) -> Typed:
    """Type what needs a policy and nothing else."""
    return run_command(words, env=os.environ | {"KEYTURN_POLICY": str(policy)})


def run_keyturn_in_new_process(place: Path, *words: str) -> Typed:
    """Type it where nothing was loaded before: what a command forgets to load is missing there."""
    return subprocess.run(
        [sys.executable, "-m", "bot", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | _build_environment(place),
        stdin=subprocess.DEVNULL,
    )


def _build_environment(place: Path) -> dict[str, str]:
    return {"KEYTURN_DATA": str(place / "var"), "KEYTURN_POLICY": str(place / "policy")}


def run_command(
    words: Sequence[str], *, env: Mapping[str, str], where: Path | None = None
) -> Typed:
    """Run a command. where: its current directory, ours if None."""
    with (
        Path(os.devnull).open() as nothing,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        streams = [file.fileno() for file in (nothing, out, err)]
        status = begin(words, streams, env=env, where=where).wait()
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), err.read())


def begin(
    words: Sequence[str],
    streams: Sequence[int],
    *,
    env: Mapping[str, str],
    where: Path | None = None,
) -> "Running":
    """Begin a command. streams: its input, output and errors; if a terminal, it has that one."""
    request = {"words": words, "env": dict(env), "where": str(where or Path.cwd())}
    typist = _start_cli_server()
    socket.send_fds(typist, [json.dumps(request).encode()], [*streams])
    return Running(int(typist.recv(100)))


class Running:
    """A command that was begun."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether somebody waited for its end."""
        return self._status is not None

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        if self._status is None:
            typist = _start_cli_server()
            typist.send(str(self.pid).encode())
            self._status = int(typist.recv(100))
        return self._status

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if not self.is_over:
            os.kill(self.pid, number)


@cache
def _start_cli_server() -> socket.socket:
    """Start it; it ends when nobody holds the other end of its socket any more."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli_server", str(theirs.fileno())],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours
