"""Open pages while many runs are pending: what they cost, and how much slower a check is."""

import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from bot.auth import sessions
from bot.db import runs
from bot.model.run import RequestTerms
from tests.bench.farm import Farm
from tests.bench.measurements import Part, set_maximum, table
from tests.bench.served_keyturn import WEB, Mark, ServedKeyturn

_EACH = 8
_SECONDS = 15.0


def measure(pages: int, pending: int) -> Part:
    """Open so many pages, and look at none: what they are sent waits in the kernel."""
    with (
        tempfile.TemporaryDirectory() as place,
        Farm(Path(place, "farm"), 2) as farm,
        ExitStack() as opened,
    ):
        names = [f"p{n}" for n in range(pages // _EACH + 1)]
        people = farm.policy / "people.yaml"
        more = "".join(f"  {name}: {{name: {name}, roles: [administrator]}}\n" for name in names)
        people.write_text(people.read_text() + more)
        served = opened.enter_context(ServedKeyturn(farm, Path(place, "served")))
        for n in range(pending):
            request = Mark(host="web2", mark=str(n))
            served.service.keyturn.service.request_run(request, RequestTerms("dora", WEB))
        _wait_until_pending(served, pending)
        alone = _time_checks(served)
        with served.service.keyturn.database.transaction() as tx:
            tokens = [sessions.begin_session(tx, name) for name in names]
        for n in range(pages):
            opened.enter_context(_open_page(served.service.address, tokens[n // _EACH]))
        # Until each has had its first event.
        time.sleep(_SECONDS)
        began, cpu = time.monotonic(), time.process_time()
        time.sleep(_SECONDS)
        idle = (time.process_time() - cpu) / (time.monotonic() - began)
        beside = _time_checks(served)
    what = f"{pages} open pages, {pending} pending runs"
    figures = [
        set_maximum(10, f"{what}: of a core", idle * 100, "%"),
        set_maximum(1.3, f"{what}: a check, times one without pages", beside / alone, "x"),
    ]
    return Part(table(figures), figures)


def _wait_until_pending(served: ServedKeyturn, count: int) -> None:
    """Wait until all are planned, which would be counted otherwise."""
    end = time.monotonic() + 120
    while True:
        with served.service.keyturn.database.reading() as tx:
            if len(runs.list_pending(tx)) >= count:
                return
        assert time.monotonic() < end
        time.sleep(0.2)


def _time_checks(served: ServedKeyturn) -> float:
    return median(served.one() for _ in range(30))


def _open_page(address: str, session: str) -> socket.socket:
    place = urlsplit(address)
    page = socket.create_connection((place.hostname, place.port), timeout=15)
    head = f"GET /stream HTTP/1.1\r\nHost: {place.netloc}\r\nCookie: keyturn={session}\r\n\r\n"
    page.sendall(head.encode())
    return page
