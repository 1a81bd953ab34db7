"""A queue from which one thread takes the results of many threads in batches.

The taker is woken for the first and for the last item of a batch, and not for each item.
"""

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """Collects a known number of items. Any thread may put; *remaining* are still to be taken."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining
        self._items: list[T] = []
        self._lock = threading.Lock()
        self._has_items, self._is_complete = threading.Event(), threading.Event()

    def put_item(self, item: T) -> None:
        """Add one item."""
        with self._lock:
            self._items.append(item)
            if len(self._items) == 1:
                self._has_items.set()
            if len(self._items) == self.remaining:
                self._is_complete.set()

    def take_batch(self, *, seconds: float) -> Sequence[T]:
        """Wait for an item; return it and those that follow within *seconds*."""
        self._has_items.wait()
        self._is_complete.wait(seconds)
        with self._lock:
            taken, self._items = self._items, []
            self.remaining -= len(taken)
            self._has_items.clear()
            self._is_complete.clear()
        return taken
