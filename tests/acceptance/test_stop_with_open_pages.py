"""A server that is stopped while two hundred pages follow it ends them, and logs no error."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bot.auth import sessions
from bot.db.database import Database
from bot.model import signing
from tests.bot.web.sample_runs import add_pending_run, add_requested_run
from tests.policies import write_policy

_PAGES, _PAGES_EACH, _PENDING = 200, 8, 60
_PEOPLE = [f"p{n}" for n in range(_PAGES // _PAGES_EACH + 1)]


@contextmanager
def _serve(place: Path) -> Generator[tuple[subprocess.Popen[str], int]]:
    write_policy(place / "policy")
    people = place / "policy" / "people.yaml"
    more = "".join(f"  {name}: {{name: {name}, roles: [administrator]}}\n" for name in _PEOPLE)
    people.write_text(people.read_text() + more)
    known = {"KEYTURN_DATA": str(place / "var"), "KEYTURN_POLICY": str(place / "policy")}
    with (
        (place / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "bot", "serve"],
            env=os.environ | known | {"KEYTURN_PORT": "0"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        ready = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert ready is not None
        try:
            yield process, int(ready[1])
        finally:
            process.kill()


def _fill(place: Path) -> list[str]:
    """Add pending runs, and sign everyone in; return the sessions."""
    key = signing.load_signing_key(place / "var" / "changelog.key")
    database = Database(f"sqlite:///{place / 'var' / 'keyturn.db'}", key)
    with database.transaction() as tx:
        for _ in range(_PENDING):
            add_pending_run(tx, add_requested_run(tx))
        tokens = [sessions.begin_session(tx, name) for name in _PEOPLE]
    database.close()
    return tokens


def _open_page(port: int, session: str) -> socket.socket:
    page = socket.create_connection(("127.0.0.1", port), timeout=15)
    head = f"GET /stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: keyturn={session}\r\n\r\n"
    page.sendall(head.encode())
    return page


def _read_until(page: socket.socket, text: bytes) -> None:
    received = b""
    while text not in received:
        piece = page.recv(65_536)
        assert piece, received
        received += piece


def test_stop_with_hundreds_of_open_pages_logs_no_error(tmp_path: Path) -> None:
    with _serve(tmp_path) as (process, port), ExitStack() as opened:
        tokens = _fill(tmp_path)
        pages = [
            opened.enter_context(_open_page(port, tokens[n // _PAGES_EACH])) for n in range(_PAGES)
        ]
        for page in pages:
            _read_until(page, b"event: changed")
        process.send_signal(signal.SIGTERM)
        process.wait(15)
    log = (tmp_path / "log").read_text()
    # Hundreds of pages that open within a second may make it slow, which it says, and so does the
    # scheduler, whose next call of a duty is due before the last one has ended.
    slow = ("WARNING bot.observability", "skipped: maximum number of running instances")
    assert [line for line in log.splitlines() if not any(one in line for one in slow)] == []
