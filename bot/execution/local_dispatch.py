"""The embedded dispatcher: a few threads of this process."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait

from bot.db import priority
from bot.db.database import Transaction
from bot.db.priority import Turn
from bot.db.write_lock import urgent_write


class FairQueue:
    """Any number of runs, each once. Threads may share it."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, int]] = []
        self._waiting: set[int] = set()
        self._places: dict[int, dict[str, int]] = {}
        self._now: dict[int, int] = {}
        self._count = itertools.count()
        self._lock = threading.Lock()

    def join(self, run: int, turn: Turn) -> bool:
        """Put a run into the line; False if it is there: who waits will see all that happens."""
        with self._lock:
            if run in self._waiting:
                return False
            self._waiting.add(run)
            last = self._places.setdefault(turn.line, {})
            place = priority.fair_place(last, self._now.get(turn.line, 0), turn)
            last[turn.who] = place
            heapq.heappush(self._heap, (-turn.line, place, turn.step, next(self._count), run))
            return True

    def take(self) -> int | None:
        """Return whose turn it is, and take it out; None if nobody waits."""
        with self._lock:
            if not self._heap:
                return None
            behind, place, _, _, run = heapq.heappop(self._heap)
            self._now[-behind] = place
            self._waiting.remove(run)
            if not self._heap:
                # Who comes now has nobody to take turns with.
                self._places.clear()
            return run

    @property
    def waiting(self) -> Collection[int]:
        with self._lock:
            return frozenset(self._waiting)


log = logging.getLogger(__name__)


class _Lane:
    """Threads, and the line before them."""

    def __init__(self, threads: int, name: str) -> None:
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.line = FairQueue()


class LocalDispatcher:
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
        turn = priority.get_turn(tx, run)
        lane = self._urgent if turn.rank == priority.URGENT else self._runs
        tx.after_commit(lambda: self._submit(lane, run, turn))

    def look(self, tx: Transaction, run: int, site: str) -> None:  # noqa: ARG002 - one process serves every site
        turn = priority.get_turn(tx, run)
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

    def _hurry(self, line: FairQueue) -> None:
        with urgent_write():
            self._work(line)

    def _work(self, line: FairQueue) -> None:
        run = line.take()
        if self._advance is None or run is None:
            raise RuntimeError("started work before start(), or with nobody in the line")
        try:
            self._advance(run)
        except Exception:
            log.exception("run %d could not be advanced", run)
            raise
