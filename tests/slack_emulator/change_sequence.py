"""The sequence of changes that open pages follow."""

import asyncio


class ChangeSequence:
    """Count changes, and wake the pages that wait for the next one.

    Another thread than the one that waits may advance it: one loop serves the pages
    while a test or a worker changes the workspace from elsewhere.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def advance(self) -> int:
        self.sequence += 1
        for loop, event in tuple(self._waiting):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
        return self.sequence

    async def wait_beyond(self, sequence: int, *, within: float) -> int:
        """Return the sequence as soon as it is past *sequence*, or after *within* seconds."""
        event = asyncio.Event()
        entry = (asyncio.get_running_loop(), event)
        self._waiting.add(entry)
        try:
            if self.sequence <= sequence:
                async with asyncio.timeout(within):
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(entry)
        return self.sequence
