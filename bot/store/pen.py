"""The pen: of all threads one writes at a time, and whoever is in a hurry before the others."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_HURRIED: ContextVar[bool] = ContextVar("hurried", default=False)


@contextmanager
def in_a_hurry() -> Generator[None]:
    """Let what this thread writes in the block wait for nobody else's: glass was broken for it."""
    before = _HURRIED.set(True)
    try:
        yield
    finally:
        _HURRIED.reset(before)


def hurried() -> bool:
    return _HURRIED.get()


class Pen:
    """Any number of threads want it, and one has it."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self._first, self._others = threading.Condition(lock), threading.Condition(lock)
        self._hurried = 0
        self._taken = False

    def take(self, patience: float) -> bool:
        """Wait for it as long as that, in seconds; False if it did not come in time."""
        if not hurried():
            with self._others:
                return self._take(self._others, patience)
        with self._first:
            self._hurried += 1
            try:
                return self._take(self._first, patience)
            finally:
                self._hurried -= 1
                # Whoever waited for us alone is not to wait on, where we have given up.
                if not self._taken:
                    self._others.notify()

    def give(self) -> None:
        with self._first:
            self._taken = False
            (self._first if self._hurried else self._others).notify()

    def _take(self, mine: threading.Condition, patience: float) -> bool:
        came = mine.wait_for(lambda: self._is_free_for(mine), patience)
        self._taken = self._taken or came
        return came

    def _is_free_for(self, mine: threading.Condition) -> bool:
        return not self._taken and (mine is self._first or not self._hurried)
