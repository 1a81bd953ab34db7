"""The embedded dispatcher: a few threads of this process."""

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait

from bot.dispatch.line import Line
from bot.store import turns
from bot.store.database import Transaction
from bot.store.pen import in_a_hurry
from bot.store.turns import Turn

log = logging.getLogger(__name__)


class _Lane:
    """Threads, and the line before them."""

    def __init__(self, threads: int, name: str) -> None:
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.line = Line()


class InProcess:
    """The embedded default: a few threads of this process, and others for what only reads.

    threads: as many as share a commit, since those of a wave mostly wait for their hosts.
    looks: fewer than the commands that one host takes at once, so that a change finds a place.
    urgent: besides them, for broken glass alone: it waits for no other run's thread.
    """

    def __init__(self, threads: int = 16, *, looks: int = 6, urgent: int = 2) -> None:
        self._runs, self._looks = _Lane(threads, "run"), _Lane(looks, "look")
        self._urgent = _Lane(urgent, "urgent")
        self._under_way: set[Future[None]] = set()
        self._advance: Callable[[int], None] | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    @property
    def _lanes(self) -> tuple[_Lane, ...]:
        return self._runs, self._looks, self._urgent

    def start(self, advance: Callable[[int], None]) -> None:
        """Begin to work: *advance* brings one run as far as it can go."""
        self._advance = advance

    def enqueue(self, tx: Transaction, run: int, site: str) -> None:  # noqa: ARG002 - one process serves every site
        turn = turns.of(tx, run)
        lane = self._urgent if turn.rank == turns.URGENT else self._runs
        tx.after_commit(lambda: self._submit(lane, run, turn))

    def look(self, tx: Transaction, run: int, site: str) -> None:  # noqa: ARG002 - one process serves every site
        turn = turns.of(tx, run)
        tx.after_commit(lambda: self._submit(self._looks, run, turn))

    def busy(self, tx: Transaction) -> Collection[int]:  # noqa: ARG002 - it is all in this process
        return frozenset[int]().union(*(lane.line.waiting for lane in self._lanes))

    def stop(self, patience: float | None = None) -> bool:
        """Take nothing new and let what is under way come to its end; False if it did not.

        patience: seconds to wait for that; None for as long as it takes.
        """
        with self._lock:
            self._closed.set()
        for lane in self._lanes:
            lane.pool.shutdown(wait=False, cancel_futures=True)
        return not wait(self._under_way, timeout=patience).not_done

    def _submit(self, lane: _Lane, run: int, turn: Turn) -> None:
        # What is not taken now is found again at the next start: the state is in the database.
        with self._lock:
            if self._closed.is_set() or not lane.line.join(run, turn):
                return
            # Whichever thread is free next takes whose turn it is by then.
            work = self._hurry if lane is self._urgent else self._work
            future = lane.pool.submit(work, lane.line)
            self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)

    def _hurry(self, line: Line) -> None:
        with in_a_hurry():
            self._work(line)

    def _work(self, line: Line) -> None:
        run = line.take()
        if self._advance is None or run is None:
            raise RuntimeError("started work before start(), or with nobody in the line")
        try:
            self._advance(run)
        except Exception:
            log.exception("run %d could not be advanced", run)
            raise
