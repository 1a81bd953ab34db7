"""The rate at which a channel takes messages: about one a second, in bursts after a pause.

Source: https://docs.slack.dev/apis/web-api/rate-limits
"""

import math
from collections.abc import Callable

_MESSAGES_PER_SECOND = 1.0
_BURST_SIZE = 10


class ChannelRateLimit:
    """Limits messages per channel. clock: returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Until when the messages of each channel take, at one a second.
        self._busy_until: dict[str, float] = {}

    def reserve_turn(self, channel: str) -> float:
        """Reserve the next turn and return in how many seconds it is. channel: "" for none."""
        if not channel:
            return 0.0
        now = self._clock()
        until = max(self._busy_until.get(channel, -math.inf), now)
        self._busy_until[channel] = until + 1 / _MESSAGES_PER_SECOND
        if len(self._busy_until) > 1000:
            self._busy_until = {name: end for name, end in self._busy_until.items() if end > now}
        return max(0.0, until - now - (_BURST_SIZE - 1) / _MESSAGES_PER_SECOND)
