"""Moves: who waits for a run to come into another state hears of it, within this process.

Whoever comes a moment late hears of it as well. What another process moves is heard of by nobody
here: who waits looks from time to time as well.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from bot.model.run import State

Hear = Callable[[State], None]
# So many runs that were moved last are remembered, with their states.
REMEMBERED = 1000


class RunEvents:
    """Any thread may tell, and listen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard_by: dict[int, list[Hear]] = {}
        self._last: dict[int, State] = {}

    @contextmanager
    def heard(self, run: int, hear: Hear) -> Generator[None]:
        """Call *hear*, which must be quick, from the thread that moved the run, durably.

        Where it was moved a short while ago, call it at once.
        """
        with self._lock:
            self._heard_by.setdefault(run, []).append(hear)
            last = self._last.get(run)
        try:
            if last is not None:
                hear(last)
            yield
        finally:
            with self._lock:
                left = [one for one in self._heard_by[run] if one is not hear]
                if left:
                    self._heard_by[run] = left
                else:
                    del self._heard_by[run]

    def tell(self, run: int, state: State) -> None:
        with self._lock:
            # The newest stands last.
            self._last.pop(run, None)
            self._last[run] = state
            if len(self._last) > REMEMBERED:
                del self._last[next(iter(self._last))]
            listeners = [*self._heard_by.get(run, ())]
        for hear in listeners:
            hear(state)
