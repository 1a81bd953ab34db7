"""The write lock: one thread writes at a time, urgent threads first."""

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_URGENT: ContextVar[bool] = ContextVar("urgent", default=False)


@contextmanager
def urgent_write() -> Generator[None]:
    """Give this thread priority for writes within the block, because a person waits for them."""
    before = _URGENT.set(True)
    try:
        yield
    finally:
        _URGENT.reset(before)


def is_urgent() -> bool:
    return _URGENT.get()


class WriteLock:
    """A fair lock: urgent threads first, then in the order of arrival.

    It is passed from one thread directly to the next. If it were released in between, a running
    thread would usually be faster than a waking one, and some threads would wait forever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._urgent, self._others = deque[threading.Lock](), deque[threading.Lock]()
        self._taken = False

    def acquire(self, patience: float) -> bool:
        """Wait for the lock for *patience* seconds; False if it was not free in time."""
        queue = self._urgent if is_urgent() else self._others
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            if patience <= 0:
                return False
            wake_up = threading.Lock()
            wake_up.acquire()
            queue.append(wake_up)
        if wake_up.acquire(timeout=patience):
            return True
        with self._lock:
            if wake_up in queue:
                queue.remove(wake_up)
                return False
        # It was passed to us just after the timeout.
        return True

    def release(self) -> None:
        with self._lock:
            queue = self._urgent or self._others
            if queue:
                queue.popleft().release()
            else:
                self._taken = False
