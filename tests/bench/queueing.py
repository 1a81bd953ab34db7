"""Queueing on PostgreSQL: how many runs workers take a second, and how long a single one waits."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from statistics import median

from bot.db import migrations
from bot.db.database import Database
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.execution.procrastinate_worker import ProcrastinateWorker
from bot.model.signing import SigningKey
from tests.bench.measurements import Part, p95, set_maximum, set_minimum, table
from tests.playground.postgres import Postgres

_SITE = "main"
_WORKERS = 4
_PATIENCE = 120.0
# Two people do not ask in the same moment.
_PAUSE = 0.02


def measure(count: int, singles: int, rounds: int) -> Part:
    """Enqueue so many runs at once, so often, and then so many one by one."""
    with Postgres(fsync="on") as server:
        database = Database(server.new_database(), SigningKey.create())
        migrations.upgrade_schema(database)
        with _start_workers(database.engine.url.render_as_string(False)) as taken:
            queue = _Queue(database, taken)
            queue.wait_for(queue.enqueue(8 * _WORKERS))
            rates = [queue.measure_rate(count) for _ in range(rounds)]
            waits = [queue.measure_wait() * 1000 for _ in range(singles)]
        database.close()
    figures = [
        set_minimum(300, f"runs taken by {_WORKERS} workers", median(rates), "/s"),
        set_maximum(15, "from enqueued to taken, p95", p95(waits), "ms"),
    ]
    return Part(table(figures), figures)


class _Taken:
    """When each run was taken, by the clock that all processes share."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}
        self.changed = threading.Condition()

    def listen(self, worker: "subprocess.Popen[str]") -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            run, at = json.loads(line)
            with self.changed:
                self.at[run] = at
                self.changed.notify_all()


@contextmanager
def _start_workers(url: str) -> Generator[_Taken]:
    command = [sys.executable, "-m", __name__, url]
    taken = _Taken()
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(_WORKERS)
    ]
    listeners = [threading.Thread(target=taken.listen, args=(one,)) for one in workers]
    for one in listeners:
        one.start()
    try:
        yield taken
    finally:
        for worker, listener in zip(workers, listeners, strict=True):
            assert worker.stdin is not None
            worker.stdin.close()
            worker.wait()
            listener.join()


class _Queue:
    def __init__(self, database: Database, taken: _Taken) -> None:
        self._database, self._taken = database, taken
        self._dispatcher = ProcrastinateDispatcher()
        self._last = 0

    def enqueue(self, count: int) -> Sequence[int]:
        """Enqueue so many in one transaction, as a wave does, and return their numbers."""
        numbers = range(self._last + 1, self._last + count + 1)
        self._last += count
        with self._database.transaction() as tx:
            for number in numbers:
                self._dispatcher.enqueue_run(tx, number, _SITE)
        return numbers

    def wait_for(self, numbers: Sequence[int]) -> Sequence[float]:
        """Return when each of these was taken, in order."""
        with self._taken.changed:
            assert self._taken.changed.wait_for(
                lambda: self._taken.at.keys() >= {*numbers}, _PATIENCE
            )
            return sorted(self._taken.at[number] for number in numbers)

    def measure_rate(self, count: int) -> float:
        """Return how many of so many are taken a second, once all are enqueued."""
        at = self.wait_for(self.enqueue(count))
        late = at[count // 4 :]
        return (len(late) - 1) / (late[-1] - late[0])

    def measure_wait(self) -> float:
        """Return the seconds that a run waits while nothing else is enqueued."""
        numbers = self.enqueue(1)
        enqueued = time.monotonic()
        [taken] = self.wait_for(numbers)
        time.sleep(_PAUSE)
        return max(taken - enqueued, 0.0)


def main(url: str) -> None:
    """Take runs until standard input ends, and print each with the time."""
    lock = threading.Lock()

    def take(run: int) -> None:
        at = time.monotonic()
        with lock:
            print(json.dumps([run, at]), flush=True)

    worker = ProcrastinateWorker(url, sites=[_SITE])
    worker.start(take)
    sys.stdin.read()
    worker.stop(10)


if __name__ == "__main__":
    main(*sys.argv[1:])
