"""The watch over a connection on which somebody waits: it is cut once nobody is there any more.

A machine that is gone is noticed by the kernel, which gets no confirmation. A peer whose machine
confirms all and says nothing, such as an sshd that hangs, a host behind a jump host, or a firewall
in between that answers for it, is noticed only by asking it: sshd answers whatever a command does.
"""

import threading
import time
from contextlib import suppress
from typing import Protocol, Self


class Line(Protocol):
    """What is watched. last_heard: when anything came from there, by the monotonic clock."""

    @property
    def last_heard(self) -> float: ...

    def ask_for_a_sign(self) -> None: ...

    def close(self) -> None: ...


class Watch:
    """Closes *line* within the block, after so many seconds or so many of silence.

    It never sends by itself, as whoever sends may have to wait for room without end.
    """

    def __init__(self, line: Line, *, seconds: float, silence: float) -> None:
        self._line = line
        self._seconds = seconds
        self._silence = silence
        self._over = threading.Event()
        self._asking: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.fell_silent = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _run(self) -> None:
        began = time.monotonic()
        quarter = self._silence / 4
        while True:
            now = time.monotonic()
            silent = now - max(self._line.last_heard, began)
            left = began + self._seconds - now
            self.fell_silent = silent >= self._silence
            if self.fell_silent or left <= 0:
                self._line.close()
                return
            if silent >= quarter:
                self._ask()
            if self._over.wait(min(left, quarter - silent % quarter)):
                return

    def _ask(self) -> None:
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._asked, name="sign", daemon=True)
            self._asking.start()

    def _asked(self) -> None:
        # A connection that has ended meanwhile is told by whoever waits on it.
        with suppress(Exception):
            self._line.ask_for_a_sign()
