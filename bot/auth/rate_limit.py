"""Rate limit of one token, at the API and at /mcp: a burst, and a rate per second after it."""

import threading
import time
from collections.abc import Callable

_BURST, _PER_SECOND = 120, 20.0
_MAX_TOKENS = 10_000


class RateLimit:
    """Token bucket for each API token. Thread-safe.

    Args:
        burst: Number of requests that may come without a pause.
        per_second: Number of requests that each second adds.
    """

    def __init__(
        self,
        *,
        burst: int = _BURST,
        per_second: float = _PER_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst, self._per_second, self._clock = burst, per_second, clock
        self._lock = threading.Lock()
        # Of each token: the number of requests left, and the time of that count.
        self._left: dict[int, tuple[float, float]] = {}

    def take(self, token: int) -> float:
        """Count a request and return 0, or return the seconds until the next is allowed."""
        with self._lock:
            now = self._clock()
            left, then = self._left.get(token, (float(self._burst), now))
            left = min(self._burst, left + (now - then) * self._per_second)
            if left < 1:
                return (1 - left) / self._per_second
            if len(self._left) >= _MAX_TOKENS:
                self._left.clear()
            self._left[token] = left - 1, now
            return 0.0
