"""The reactor: one thread that listens to all connections, and sleeps while nobody speaks."""

import logging
import select
import threading
from contextlib import suppress
from typing import Protocol

log = logging.getLogger(__name__)

_WHATEVER = select.EPOLLIN | select.EPOLLRDHUP


class Ear(Protocol):
    """Whose connection it is. All are called by the reactor's thread, and must not wait.

    wake: whoever waits there may go on; must not raise. Called once all have been listened to:
    threads that wake in between would take the interpreter from this one by turns.
    """

    def readable(self) -> None: ...

    def writable(self) -> None: ...

    def wake(self) -> None: ...


class Reactor:
    """Tells each connection when there is something to read, or room to write again.

    Any thread may add and forget connections. The thread starts with the first.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._ears: dict[int, Ear] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def add(self, number: int, ear: Ear) -> None:
        """Listen to the socket with this file number, which does not block."""
        with self._lock:
            self._ears[number] = ear
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="reactor", daemon=True)
                thread.start()
                self._thread = thread
        self._poll.register(number, _WHATEVER)

    def want_room(self, number: int, *, wanted: bool) -> None:
        """Tell that one when there is room to write; or stop telling it."""
        with suppress(OSError):  # it was forgotten meanwhile
            self._poll.modify(number, _WHATEVER | (select.EPOLLOUT if wanted else 0))

    def forget(self, number: int) -> None:
        """Listen no more. Before the socket is closed: its number may be another's at once."""
        with suppress(OSError, ValueError):
            self._poll.unregister(number)
        with self._lock:
            self._ears.pop(number, None)

    @property
    def runs_this(self) -> bool:
        """Whether the thread that asks is the reactor's own."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        while True:
            events = self._poll.poll()
            called = [ear for number, event in events if (ear := self._called(number, event))]
            for ear in called:
                ear.wake()

    def _called(self, number: int, event: int) -> Ear | None:
        ear = self._ears.get(number)
        if ear is None:
            return None
        try:
            if event & select.EPOLLOUT:
                ear.writable()
            if event & ~select.EPOLLOUT:
                ear.readable()
        except Exception:
            # One connection's fault must not deafen all the others.
            log.exception("a connection failed in a way that nobody foresaw")
            self.forget(number)
        return ear


# There is one for the whole process, as there is one clock.
REACTOR = Reactor()
