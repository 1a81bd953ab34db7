"""The lag of the event loop: whatever holds it up holds up every page and acknowledgement."""

import asyncio
import logging
import time

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_LATE_SECONDS = 1.0
# Who reads the log has understood it the first time.
_QUIET_SECONDS = 60.0


async def alarm() -> None:
    """Write into the log, once a minute at most, that nobody was answered for a second or more."""
    said = float("-inf")
    while True:
        asked = time.monotonic()
        await asyncio.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        late = now - asked - _LOOK_SECONDS
        if late >= _LATE_SECONDS and now - said >= _QUIET_SECONDS:
            said = now
            log.warning(
                "nobody was answered for %.1f s, and Slack waits for 3 s at the most: this "
                "machine is short of processors, or something waits where it may not",
                late,
            )
