"""The time of a history page: its database queries, and the whole page."""

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from starlette.types import Message

from bot.auth import sessions
from bot.db import search
from bot.db.database import Database
from bot.db.search import RunFilter
from bot.model.run import State
from tests.bench.fill_database import APART, AREAS, DISKS, HOSTS, PEOPLE
from tests.bot.harness import open_harness
from tests.bot.web.conftest import create_site

_SIZE = 40
_RARE = frozenset({State.UNKNOWN, State.WITHDRAWN})
_NOT_DONE = frozenset({State.FAILED, State.DENIED, State.EXPIRED})


def filters(count: int, began: int, dice: random.Random) -> dict[str, Callable[[], RunFilter]]:
    """Return how to choose a filter of each kind, another one each time. count: of runs."""

    def some() -> int:
        return dice.randint(count // 10 + 50, count)

    return {
        "newest": lambda: RunFilter(),
        "anywhere in the past": lambda: RunFilter(before=some()),
        "host": lambda: RunFilter(host=dice.choice(HOSTS), before=some()),
        "hosts web1*": lambda: RunFilter(host="web1*", before=some()),
        "hosts web*": lambda: RunFilter(host="web*", before=some()),
        "area": lambda: RunFilter(area=dice.choice(AREAS), before=some()),
        "person": lambda: RunFilter(person=dice.choice(PEOPLE), before=some()),
        "runbook": lambda: RunFilter(runbook="abusers clear", before=some()),
        "states": lambda: RunFilter(states=_NOT_DONE, before=some()),
        "value": lambda: RunFilter(text=[f"device={dice.choice(DISKS)}"], before=some()),
        "rare word of output": lambda: RunFilter(text=["overheated"]),
        "host and value": lambda: RunFilter(
            host=dice.choice(HOSTS), text=[f"device={dice.choice(DISKS)}"], before=some()
        ),
        "host, person and states": lambda: RunFilter(
            host=dice.choice(HOSTS), person=dice.choice(PEOPLE), states=_NOT_DONE, before=some()
        ),
        "value and area": lambda: RunFilter(
            area=dice.choice(AREAS), text=[f"device={dice.choice(DISKS)}"], before=some()
        ),
        "two values": lambda: RunFilter(
            text=[f"device={dice.choice(DISKS)}", "as"], before=some()
        ),
        "person and states": lambda: RunFilter(
            person=dice.choice(PEOPLE), states=_NOT_DONE, before=some()
        ),
        "states that are rare": lambda: RunFilter(states=_RARE, before=some()),
        "hosts and states": lambda: RunFilter(host="web1*", states=_NOT_DONE, before=some()),
        "an hour long ago": lambda: _hour(began + dice.randint(count // 10, count) * APART),
    }


def _hour(at: int) -> RunFilter:
    return RunFilter(since=at, until=at + 120 * APART)


def ask(database: Database, choose: Callable[[], RunFilter]) -> int:
    """Ask for one page as the history does; return how many runs it has."""
    with database.reading() as tx:
        page = search.list_run_page(tx, choose(), most=_SIZE, whose="olga")
    return len(page.runs)


def ask_raw(database: Database, choose: Callable[[], int]) -> int:
    """Ask the driver for the runs of a host by its index, and do nothing with them."""
    raw = database.engine.raw_connection()
    try:
        driver: Any = raw.driver_connection
        mark = "?" if database.embedded else "%s"
        rows = driver.execute(
            f"SELECT * FROM run WHERE host = {mark} AND id < {mark} "  # noqa: S608 - a mark
            f"ORDER BY id DESC LIMIT {_SIZE}",
            (HOSTS[choose() % len(HOSTS)], choose()),
        ).fetchall()
        driver.rollback()
    finally:
        raw.close()
    return len(rows)


class Pages:
    """The web door over a filled database, asked without a wire in between."""

    def __init__(self, database: Database) -> None:
        self._stack = ExitStack()
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        harness = self._stack.enter_context(open_harness(directory, database=database))
        self._site = create_site(harness)
        with database.transaction() as tx:
            self._session = sessions.begin_session(tx, "olga")
        self._loop = asyncio.new_event_loop()
        self._stack.callback(self._loop.close)

    def close(self) -> None:
        self._stack.close()

    def timed(self, address: str, rounds: int) -> list[float]:
        """Return how many seconds each round took.

        All of them are asked of one server that goes on: each of its own would begin new threads.
        """
        return self._loop.run_until_complete(self._timed(address, rounds))

    async def _timed(self, address: str, rounds: int) -> list[float]:
        taken: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter()
            await self._get(address)
            taken.append(time.perf_counter() - began)
        return taken

    async def _get(self, address: str) -> int:
        path, _, query = address.partition("?")
        status, length = 0, 0

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, length
            status = message.get("status", status)
            length += len(message.get("body", b""))

        cookie = f"{self._site.parts.cookie_name}={self._session}".encode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(b"host", b"keyturn.test"), (b"cookie", cookie)],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await self._site.app(scope, receive, send)
        assert status == 200, status
        return length
