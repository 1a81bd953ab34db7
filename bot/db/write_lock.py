"""The pen: of all threads one writes at a time, and whoever is in a hurry before the others."""

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_HURRIED: ContextVar[bool] = ContextVar("hurried", default=False)


@contextmanager
def urgent_write() -> Generator[None]:
    """Let what this thread writes in the block wait for nobody else's: somebody waits for it."""
    before = _HURRIED.set(True)
    try:
        yield
    finally:
        _HURRIED.reset(before)


def is_urgent() -> bool:
    return _HURRIED.get()


class WriteLock:
    """Any number of threads want it, and one has it: who came first of those in no less a hurry.

    It is handed from one to the next. If it lay free for a moment, whoever has just written would
    mostly be quicker than who has to wake up for it, and some would wait for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hurried, self._others = deque[threading.Lock](), deque[threading.Lock]()
        self._taken = False

    def take(self, patience: float) -> bool:
        """Wait for it as long as that, in seconds; False if it did not come in time."""
        line = self._hurried if is_urgent() else self._others
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            if patience <= 0:
                return False
            bell = threading.Lock()
            bell.acquire()
            line.append(bell)
        if bell.acquire(timeout=patience):
            return True
        with self._lock:
            if bell in line:
                line.remove(bell)
                return False
        # It was handed to us as we gave up.
        return True

    def give(self) -> None:
        with self._lock:
            line = self._hurried or self._others
            if line:
                line.popleft().release()
            else:
                self._taken = False
