"""The pace at which a channel takes messages: about one a second, and some at once after a pause.

Source: https://docs.slack.dev/apis/web-api/rate-limits
"""

import math
from collections.abc import Callable

_A_SECOND = 1.0
_AT_ONCE = 10


class Pace:
    """Says of each channel whether it is its turn. clock: seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Until when each channel is taken up by what was said in it, at one message a second.
        self._taken: dict[str, float] = {}

    def wait(self, channel: str) -> float:
        """Take the next turn, and return in how many seconds it is. channel: "" for none."""
        if not channel:
            return 0.0
        now = self._clock()
        until = max(self._taken.get(channel, -math.inf), now)
        self._taken[channel] = until + 1 / _A_SECOND
        if len(self._taken) > 1000:
            self._taken = {name: end for name, end in self._taken.items() if end > now}
        return max(0.0, until - now - (_AT_ONCE - 1) / _A_SECOND)
