"""State changes of runs, published to listeners within this process.

A listener that comes a little late is called too. State changes made by other processes are not
published here: a listener must also poll from time to time.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from bot.model.run import State

Listener = Callable[[State], None]
# The states of so many runs that changed last are kept for late listeners.
REMEMBERED = 1000


class RunEvents:
    """Publishes state changes. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[int, list[Listener]] = {}
        self._last: dict[int, State] = {}

    @contextmanager
    def listen(self, run: int, listener: Listener) -> Generator[None]:
        """Call *listener* after each durable state change of the run, from the committing thread.

        It must be quick. It is called immediately if the state changed a short while ago.
        """
        with self._lock:
            self._listeners.setdefault(run, []).append(listener)
            last = self._last.get(run)
        try:
            if last is not None:
                listener(last)
            yield
        finally:
            with self._lock:
                left = [one for one in self._listeners[run] if one is not listener]
                if left:
                    self._listeners[run] = left
                else:
                    del self._listeners[run]

    def publish(self, run: int, state: State) -> None:
        with self._lock:
            # Keep the newest last.
            self._last.pop(run, None)
            self._last[run] = state
            if len(self._last) > REMEMBERED:
                del self._last[next(iter(self._last))]
            listeners = [*self._listeners.get(run, ())]
        for listener in listeners:
            listener(state)
