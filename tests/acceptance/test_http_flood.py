"""Thousands of unfinished HTTP requests from strangers against `keyturn serve`."""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.bot.installation import create_installation
from tests.cli_process import run_keyturn

_DESCRIPTORS, _HALF_OPEN = 512, 1200
_UNFINISHED = (
    b"",
    b"GET / HT",
    b"GET / HTTP/1.1\r\nHost: keyturn\r\nX-A: 1\r\n",
    b"POST /api/v1/runs HTTP/1.1\r\nHost: keyturn\r\nContent-Length: 1000\r\n\r\n{",
)


@dataclass(frozen=True)
class Served:
    address: str
    token: str
    log: Path

    def half_open(self, stack: ExitStack, number: int) -> None:
        """Begin so many requests, and keep them for as long as the service does."""
        parts = urlsplit(self.address)
        for n in range(number):
            one = stack.enter_context(
                socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10)
            )
            with suppress(ConnectionError):
                one.sendall(_UNFINISHED[n % len(_UNFINISHED)])

    @contextmanager
    def flood_on(self) -> Generator[None]:
        """Go on beginning requests, as many as the service takes."""
        over = threading.Event()

        def flood() -> None:
            while not over.is_set():
                with ExitStack() as stack:
                    self.half_open(stack, 100)

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            yield
        finally:
            over.set()
            flooding.join(30)


@contextmanager
def _start_web_server(place: Path, log: IO[bytes]) -> Generator[str]:
    def few_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))

    known = {"KEYTURN_DATA": str(place / "var"), "KEYTURN_POLICY": str(place / "policy")}
    with subprocess.Popen(
        [sys.executable, "-m", "bot", "serve"],
        env=os.environ | known | {"KEYTURN_PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=log,
        preexec_fn=few_descriptors,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield line.rpartition(" ")[2].strip()
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def served(tmp_path: Path) -> Generator[Served]:
    with create_installation(tmp_path):
        pass
    made = run_keyturn(
        tmp_path, "token", "new", "olga", "--scope", "read", "--days", "1", "--json"
    )
    log = tmp_path / "serve.log"
    with log.open("wb") as written, _start_web_server(tmp_path, written) as address:
        yield Served(address, json.loads(made.stdout)["token"], log)


def test_pages_api_and_stop_all_answer_during_a_flood_of_unfinished_requests(
    served: Served, tmp_path: Path
):
    with ExitStack() as stack:
        served.half_open(stack, _HALF_OPEN)
        stack.enter_context(served.flood_on())
        for path, status in (("/", 401), ("/healthz", 200), ("/api/v1/runs", 200)):
            begun = time.monotonic()
            bearer = {"Authorization": f"Bearer {served.token}"}
            answer = httpx2.get(served.address + path, headers=bearer, timeout=10)
            assert answer.status_code == status
            assert time.monotonic() - begun < 5
        stopped = run_keyturn(tmp_path, "stop", "all", "--why", "a flood")
        assert stopped.returncode == 0, stopped.stderr
        assert "Everything is stopped" in stopped.stdout
    assert "HTTP connections closed" in served.log.read_text()
    assert served.log.stat().st_size < 20_000
