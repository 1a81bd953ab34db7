"""The embedded dispatcher: runs are advanced by threads of this process."""

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
    """A queue of runs, each at most once, in fair order by requester. Thread-safe."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, int]] = []
        self._queued: set[int] = set()
        self._last_places: dict[int, dict[str, int]] = {}
        self._current_place: dict[int, int] = {}
        self._count = itertools.count()
        self._lock = threading.Lock()

    def add_run(self, run_id: int, turn: Turn) -> bool:
        """Add a run; return False if it is queued already."""
        with self._lock:
            if run_id in self._queued:
                return False
            self._queued.add(run_id)
            last = self._last_places.setdefault(turn.line, {})
            place = priority.compute_place(last, self._current_place.get(turn.line, 0), turn)
            last[turn.who] = place
            heapq.heappush(self._heap, (-turn.line, place, turn.step, next(self._count), run_id))
            return True

    def take_next_run(self) -> int | None:
        """Remove and return the next run; None if the queue is empty."""
        with self._lock:
            if not self._heap:
                return None
            behind, place, _, _, run = heapq.heappop(self._heap)
            self._current_place[-behind] = place
            self._queued.remove(run)
            if not self._heap:
                # An empty queue starts with no earlier requesters.
                self._last_places.clear()
            return run

    @property
    def queued_runs(self) -> Collection[int]:
        with self._lock:
            return frozenset(self._queued)


log = logging.getLogger(__name__)


class _ThreadLane:
    """A thread pool and its queue."""

    def __init__(self, threads: int, name: str) -> None:
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.queue = FairQueue()


class LocalDispatcher:
    """Advances runs in threads of this process, for the embedded engine.

    Args:
        threads: Threads for changes.
        check_threads: Threads for checks. Fewer than the parallel commands for each host, so that
            changes are not delayed.
        urgent_threads: Threads for break-glass runs alone, which wait for no other run.
    """

    def __init__(
        self, threads: int = 16, *, check_threads: int = 6, urgent_threads: int = 2
    ) -> None:
        self._change_lane, self._check_lane = (
            _ThreadLane(threads, "run"),
            _ThreadLane(check_threads, "look"),
        )
        self._urgent_lane = _ThreadLane(urgent_threads, "urgent")
        self._running: set[Future[None]] = set()
        self._advance_run: Callable[[int], None] | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    @property
    def _all_lanes(self) -> tuple[_ThreadLane, ...]:
        return self._change_lane, self._check_lane, self._urgent_lane

    def start(self, advance_run: Callable[[int], None]) -> None:
        """Start advancing runs with *advance_run*."""
        self._advance_run = advance_run

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None:  # noqa: ARG002 - one process serves every site
        turn = priority.get_turn(tx, run_id)
        lane = self._urgent_lane if turn.rank == priority.URGENT else self._change_lane
        tx.after_commit(lambda: self._submit(lane, run_id, turn))

    def enqueue_check(self, tx: Transaction, run_id: int, site: str) -> None:  # noqa: ARG002 - one process serves every site
        turn = priority.get_turn(tx, run_id)
        tx.after_commit(lambda: self._submit(self._check_lane, run_id, turn))

    def list_dispatched_runs(self, tx: Transaction) -> Collection[int]:  # noqa: ARG002 - all jobs are in this process
        return frozenset[int]().union(*(lane.queue.queued_runs for lane in self._all_lanes))

    def stop(self, timeout: float | None = None) -> bool:
        """Take nothing new and wait for work under way; return False if it did not end in time.

        timeout: Seconds to wait; None for no limit.
        """
        with self._lock:
            self._closed.set()
        for lane in self._all_lanes:
            lane.pool.shutdown(wait=False, cancel_futures=True)
        return not wait(self._running, timeout=timeout).not_done

    def _submit(self, lane: _ThreadLane, run_id: int, turn: Turn) -> None:
        # A run that is not queued now is found at the next start: its state is in the database.
        with self._lock:
            if self._closed.is_set() or not lane.queue.add_run(run_id, turn):
                return
            # The next free thread takes the run that is first in the queue by then.
            work = self._work_urgently if lane is self._urgent_lane else self._advance_next_run
            future = lane.pool.submit(work, lane.queue)
            self._running.add(future)
        future.add_done_callback(self._running.discard)

    def _work_urgently(self, queue: FairQueue) -> None:
        with urgent_write():
            self._advance_next_run(queue)

    def _advance_next_run(self, queue: FairQueue) -> None:
        run = queue.take_next_run()
        if self._advance_run is None or run is None:
            raise RuntimeError("a worker thread started before start(), or with an empty queue")
        try:
            self._advance_run(run)
        except Exception:
            log.exception("run %d could not be advanced", run)
            raise
