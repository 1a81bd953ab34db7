"""A harvest: what many threads bring and one takes, who is woken for the first and the last of it.

A queue would wake whoever takes for each of them, and most of what that takes is waking.
"""

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """left: how many are yet to be taken; each is brought once. Any thread may bring."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._brought: list[T] = []
        self._lock = threading.Lock()
        self._begun, self._complete = threading.Event(), threading.Event()

    def bring(self, one: T) -> None:
        with self._lock:
            self._brought.append(one)
            if len(self._brought) == 1:
                self._begun.set()
            if len(self._brought) == self.left:
                self._complete.set()

    def take(self, *, within: float) -> Sequence[T]:
        """Wait for one; return it and what comes within so many seconds of it, or all at once."""
        self._begun.wait()
        self._complete.wait(within)
        with self._lock:
            taken, self._brought = self._brought, []
            self.left -= len(taken)
            self._begun.clear()
            self._complete.clear()
        return taken
