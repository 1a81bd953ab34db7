"""The watch over a connection on which somebody waits: it is cut once nobody is there any more.

A machine that is gone is noticed by the kernel, which gets no confirmation. A peer whose machine
confirms all and says nothing, such as an sshd that hangs, a host behind a jump host, or a firewall
in between that answers for it, is noticed only by asking it: sshd answers whatever a command does.
"""

import logging
import math
import threading
import time
from contextlib import suppress
from typing import Protocol

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0


class Line(Protocol):
    """What is watched. last_heard: when anything came from there, by the monotonic clock."""

    @property
    def last_heard(self) -> float: ...

    def ask_for_a_sign(self) -> None: ...

    def close(self) -> None: ...


class Watch:
    """Closes *line*, until it ends, after so many seconds or so many of silence.

    It never sends by itself, as whoever sends may have to wait for room without end.
    """

    def __init__(self, line: Line, *, seconds: float, silence: float) -> None:
        self._line = line
        self._silence = silence
        self._began = time.monotonic()
        self._end = self._began + seconds
        self._asking: threading.Thread | None = None
        self.due = min(self._end, self._began + silence / 4)
        self.fell_silent = False

    def begin(self) -> None:
        _WATCHMAN.add(self)

    def end(self) -> None:
        _WATCHMAN.forget(self)

    def look(self, now: float) -> bool:
        """Do what is due and say when to look again; False once the line is cut."""
        silent = now - max(self._line.last_heard, self._began)
        self.fell_silent = silent >= self._silence
        if self.fell_silent or now >= self._end:
            threading.Thread(target=self._line.close, name="cut", daemon=True).start()
            return False
        quarter = self._silence / 4
        if silent >= quarter:
            self._ask()
        self.due = min(self._end, now + quarter - silent % quarter)
        return True

    def _ask(self) -> None:
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._asked, name="sign", daemon=True)
            self._asking.start()

    def _asked(self) -> None:
        # A connection that has ended meanwhile is told by whoever waits on it.
        with suppress(Exception):
            self._line.ask_for_a_sign()


class _Watchman:
    """Looks at every watch when it is due: one thread, and none that is started per command."""

    def __init__(self) -> None:
        self._watches: set[Watch] = set()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._wakes_at = math.inf

    def add(self, watch: Watch) -> None:
        with self._lock:
            self._watches.add(watch)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="watch", daemon=True)
                thread.start()
                self._thread = thread
            # Most are due later than it looks anyway, so that a command does not wake it.
            if watch.due < self._wakes_at:
                self._changed.notify()

    def forget(self, watch: Watch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def _run(self) -> None:
        while True:
            for watch in self._due():
                if not _looked_at(watch):
                    self.forget(watch)

    def _due(self) -> list[Watch]:
        """Wait until one is due; without any, until somebody adds one."""
        with self._changed:
            self._wakes_at = min((watch.due for watch in self._watches), default=math.inf)
            left = self._wakes_at - time.monotonic()
            if left > 0:
                self._changed.wait(None if left == math.inf else left)
            now = time.monotonic()
            return [watch for watch in self._watches if watch.due <= now]


def _looked_at(watch: Watch) -> bool:
    """Have it look; what it cannot do now, as where no thread can be begun, is tried again."""
    now = time.monotonic()
    try:
        return watch.look(now)
    except Exception:
        # One connection's trouble must not leave all the others without a watch.
        log.exception("a connection could not be looked after")
        watch.due = now + _AGAIN_SECONDS
        return True


# There is one for the whole process, as there is one reactor.
_WATCHMAN = _Watchman()
