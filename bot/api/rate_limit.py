"""The pace at which one token may come: so many requests at once, and so many a second."""

import threading
import time
from collections.abc import Callable

_BURST, _A_SECOND = 120, 20.0
_MOST_REMEMBERED = 10_000


class Pace:
    """Any thread may ask. burst: how many may come at once."""

    def __init__(
        self,
        *,
        burst: int = _BURST,
        a_second: float = _A_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst, self._a_second, self._clock = burst, a_second, clock
        self._lock = threading.Lock()
        # How many may still come, and when that was so.
        self._left: dict[int, tuple[float, float]] = {}

    def wait(self, token: int) -> float:
        """Take one turn and return 0, or return the seconds until there is one."""
        with self._lock:
            now = self._clock()
            left, then = self._left.get(token, (float(self._burst), now))
            left = min(self._burst, left + (now - then) * self._a_second)
            if left < 1:
                return (1 - left) / self._a_second
            if len(self._left) >= _MOST_REMEMBERED:
                self._left.clear()
            self._left[token] = left - 1, now
            return 0.0
