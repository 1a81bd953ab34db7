"""What is made once the port answers, and not before; whoever comes earlier waits for it."""

import asyncio
import logging
import threading
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger(__name__)

# Two threads that load modules of each other's at once may meet one that is half done.
_ONE_BY_ONE = threading.Lock()


class Later:
    """An ASGI application that *make* makes once, in a thread, when it is first wanted.

    then: called in the event loop once it has been prepared. instead: the same with what went
    wrong, where it could not be; without it, that is raised.
    """

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._made: ASGIApp | None = None
        self.then: Callable[[], None] | None = None
        self.instead: Callable[[Exception], None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        made = self._made or await asyncio.to_thread(self._once)
        await made(scope, receive, send)

    async def prepare(self) -> None:
        """Make it, if nobody has wanted it yet."""
        try:
            await asyncio.to_thread(self._once)
        except Exception as trouble:
            if self.instead is None:
                raise
            log.critical("a part of the service cannot be made, so all of it ends", exc_info=True)
            self.instead(trouble)
            return
        if self.then is not None:
            self.then()

    def _once(self) -> ASGIApp:
        with _ONE_BY_ONE:
            if self._made is None:
                self._made = self._make()
            return self._made
