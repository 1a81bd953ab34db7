"""The line: what waits for a thread, the most urgent first, and people in turn."""

import heapq
import itertools
import threading
from collections.abc import Collection

from bot.store import turns
from bot.store.turns import Turn


class Line:
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
            place = turns.fair(last, self._now.get(turn.line, 0), turn)
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
