"""The embedded dispatcher: a few threads of this process."""

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait

from bot.store.database import Transaction

log = logging.getLogger(__name__)


class InProcess:
    """The embedded default: a few threads of this process, and others for what only reads.

    looks: fewer than the commands that one host takes at once, so that a change finds a place.
    """

    def __init__(self, threads: int = 8, *, looks: int = 6) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="run")
        self._looks = ThreadPoolExecutor(looks, thread_name_prefix="look")
        self._under_way: set[Future[None]] = set()
        self._advance: Callable[[int], None] | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._waiting: set[int] = set()

    def start(self, advance: Callable[[int], None]) -> None:
        """Begin to work: *advance* brings one run as far as it can go."""
        self._advance = advance

    def enqueue(self, tx: Transaction, run: int, site: str) -> None:  # noqa: ARG002 - one process serves every site
        tx.after_commit(lambda: self._submit(self._pool, run))

    def look(self, tx: Transaction, run: int, site: str) -> None:  # noqa: ARG002 - one process serves every site
        tx.after_commit(lambda: self._submit(self._looks, run))

    def busy(self, tx: Transaction) -> Collection[int]:  # noqa: ARG002 - it is all in this process
        with self._lock:
            return frozenset(self._waiting)

    def stop(self, patience: float | None = None) -> bool:
        """Take nothing new and let what is under way come to its end; False if it did not.

        patience: seconds to wait for that; None for as long as it takes.
        """
        with self._lock:
            self._closed.set()
        for pool in (self._pool, self._looks):
            pool.shutdown(wait=False, cancel_futures=True)
        return not wait(self._under_way, timeout=patience).not_done

    def _submit(self, pool: ThreadPoolExecutor, run: int) -> None:
        # What is not taken now is found again at the next start: the state is in the database.
        with self._lock:
            # One that waits for a thread will see all that has happened by then.
            if run in self._waiting or self._closed.is_set():
                return
            self._waiting.add(run)
            future = pool.submit(self._work, run)
            self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)

    def _work(self, run: int) -> None:
        with self._lock:
            self._waiting.discard(run)
        if self._advance is None:
            raise RuntimeError("started work before start()")
        try:
            self._advance(run)
        except Exception:
            log.exception("run %d could not be advanced", run)
            raise
