"""A harvest: what many threads bring and one takes, who is woken for the first and the last of it.

A queue would wake whoever takes for each of them, and most of what that takes is waking.
"""

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """left: how many are yet to be taken; each is brought once. Any thread may bring."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining
        self._items: list[T] = []
        self._lock = threading.Lock()
        self._has_items, self._is_complete = threading.Event(), threading.Event()

    def put_item(self, item: T) -> None:
        with self._lock:
            self._items.append(item)
            if len(self._items) == 1:
                self._has_items.set()
            if len(self._items) == self.remaining:
                self._is_complete.set()

    def take_batch(self, *, seconds: float) -> Sequence[T]:
        """Wait for one; return it and what comes within so many seconds of it, or all at once."""
        self._has_items.wait()
        self._is_complete.wait(seconds)
        with self._lock:
            taken, self._items = self._items, []
            self.remaining -= len(taken)
            self._has_items.clear()
            self._is_complete.clear()
        return taken
