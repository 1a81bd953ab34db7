"""Runs a `keyturn` command as a person types it, with the data and policy of a test."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
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
    server = _connect_to_cli_server()
    socket.send_fds(server, [json.dumps(request).encode()], [*streams])
    return Running(int(server.recv(100)))


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
            server = _connect_to_cli_server()
            server.send(str(self.pid).encode())
            self._status = int(server.recv(100))
        return self._status

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if not self.is_over:
            os.kill(self.pid, number)


@cache
def _connect_to_cli_server() -> socket.socket:
    """Connect to the server of this test run, and start it if no other worker has."""
    run_id = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    # It is in no directory, so nothing is left of it.
    address = f"\0keyturn-tests-{run_id or os.getpid()}"
    test_run = os.getppid() if run_id else os.getpid()
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    deadline = time.monotonic() + 60
    while True:
        try:
            client.connect(address)
            atexit.register(client.close)
            return client
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "the server of commands does not start"
            _start_cli_server(address, test_run)


def _start_cli_server(address: str, test_run: int) -> None:
    """Start it, unless another worker just does: the address can be taken once."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(address)
        except OSError:
            time.sleep(0.01)
            return
        listener.listen()
        subprocess.run(
            [sys.executable, "-m", "tests.cli_server", str(listener.fileno()), str(test_run)],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            check=True,
        )
