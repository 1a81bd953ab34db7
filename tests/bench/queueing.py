"""Queueing: how many runs a second four workers are handed, and how soon one that is enqueued."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from statistics import median
from threading import Lock
from typing import Any

from bot.audit.signing import SigningKey
from bot.db import migrations
from bot.db.database import Database
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.execution.procrastinate_worker import ProcrastinateWorker
from tests.bench.measuring import Part, at_least, at_most, p95, table, told
from tests.playground.postgres import Postgres

_SITE = "main"
WORKERS = 4
_PATIENCE = 120.0
# A person does not ask for two things in one moment.
_PAUSE = 0.02


# The ends of pipes are of a class that the library does not name. What comes: (run, seconds).


class _Told:
    """Tells when a worker began with which run, by the clock that all processes share."""

    def __init__(self, pipe: Any) -> None:
        self._pipe, self._lock = pipe, Lock()

    def __call__(self, run: int) -> None:
        with self._lock:
            self._pipe.send((run, time.monotonic()))


def _work(url: str, pipe: Any) -> None:
    """Be one worker, until told to end."""
    crew = ProcrastinateWorker(url, sites=[_SITE])
    crew.start(_Told(pipe))
    pipe.recv()
    crew.stop(10)


@contextmanager
def _workers(url: str) -> Generator[list[Any]]:
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ours: list[Any] = []
    processes: list[ForkServerProcess] = []
    for _ in range(WORKERS):
        mine, theirs = context.Pipe()
        process = context.Process(target=_work, args=(url, theirs))
        process.start()
        ours.append(mine)
        processes.append(process)
    try:
        yield ours
    finally:
        for pipe in ours:
            pipe.send("end")
        for process in processes:
            process.join(30)
            process.kill()


class Queue:
    """A database and its workers. begun: by run, when a worker began with it."""

    def __init__(self, database: Database, pipes: list[Any]) -> None:
        self._database, self._pipes = database, pipes
        self._dispatch = ProcrastinateDispatcher()
        self._last = 0
        self.begun: dict[int, float] = {}

    def enqueue(self, count: int) -> list[int]:
        """Enqueue so many in one transaction, as a wave is."""
        numbers = list(range(self._last + 1, self._last + count + 1))
        self._last += count
        with self._database.transaction() as tx:
            for number in numbers:
                self._dispatch.enqueue(tx, number, _SITE)
        return numbers

    def await_(self, numbers: list[int]) -> None:
        """Wait until workers have begun with all of these."""
        deadline = time.monotonic() + _PATIENCE
        while not self.begun.keys() >= set(numbers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(set(numbers) - self.begun.keys())} were not begun")
            ready: list[Any] = wait(self._pipes, 1.0)
            self.begun.update(pipe.recv() for pipe in ready)

    def rate(self, count: int) -> float:
        """Return how many of so many that wait are begun in a second."""
        numbers = self.enqueue(count)
        self.await_(numbers)
        began = sorted(self.begun[number] for number in numbers)
        # Those that are taken while others are still enqueued are left out.
        late = began[count // 4 :]
        return (len(late) - 1) / (late[-1] - late[0])

    def wait(self) -> float:
        """Return how many seconds one waits that is enqueued while nothing else does."""
        [number] = self.enqueue(1)
        committed = time.monotonic()
        self.await_([number])
        time.sleep(_PAUSE)
        return max(self.begun[number] - committed, 0.0)


def measured(*, quick: bool) -> Part:
    count, tries, rounds = (1_000, 50, 1) if quick else (3_000, 300, 5)
    with Postgres() as server:
        database = Database(server.new_database(), SigningKey.new())
        migrations.upgrade_schema(database)
        with _workers(database.url) as pipes:
            queue = Queue(database, pipes)
            queue.await_(queue.enqueue(WORKERS * 8))
            rates = [queue.rate(count) for _ in range(rounds)]
            waits = [queue.wait() * 1000 for _ in range(tries)]
        database.close()
    targets = [
        at_least(300, f"begun by {WORKERS} workers", median(rates), "runs/s"),
        at_most(15, "from enqueued to begun, p95", p95(waits), "ms"),
    ]
    return Part(table([*targets, told("the same, p50", median(waits), "ms")]), targets)
