"""Live output: store what a step prints for its viewers while it runs.

Storing never delays the step: output that arrives faster than it can be stored is dropped.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from bot.db import live_output
from bot.db.database import Database, StoreUnavailable
from connectors.command import OutputListener

log = logging.getLogger(__name__)

# Seconds between two writes, and the least pause as a multiple of the time of the last write.
_PAUSE, _REST = 0.4, 5


class OutputTail:
    """The newest output lines of one step, and how many there were in total."""

    def __init__(self) -> None:
        self.total_lines = 0
        self.newest_lines: deque[str] = deque(maxlen=2 * live_output.MOST_LINES)
        self._characters = 0

    def add_lines(self, lines: Sequence[str]) -> None:
        """Add lines and drop the oldest beyond the limit."""
        self.total_lines += len(lines)
        for line in lines[-2 * live_output.MOST_LINES :]:
            if len(self.newest_lines) == self.newest_lines.maxlen:
                self._characters -= len(self.newest_lines.popleft())
            self.newest_lines.append(line)
            self._characters += len(line)
        while self._characters > 2 * live_output.MOST_CHARACTERS and len(self.newest_lines) > 1:
            self._characters -= len(self.newest_lines.popleft())

    @property
    def text(self) -> str:
        """The output so far, for a step that never returned its result."""
        omitted = self.total_lines - len(self.newest_lines)
        gap = [f"[… {omitted} lines omitted …]"] if omitted else []
        return "\n".join([*gap, *self.newest_lines])


class LiveOutputWriter:
    """Stores the output of all steps of this process, in one transaction at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._unwritten: dict[tuple[int, int], OutputTail] = {}
        self._timer: threading.Timer | None = None
        self._pause = _PAUSE

    @contextmanager
    def capture_step(
        self, run_id: int, step_number: int
    ) -> Generator[tuple[OutputTail, OutputListener]]:
        """Yield the tail of a step's output, and the listener that fills it.

        After the block, nothing more is stored for the step.
        """
        tail = OutputTail()

        def on_output(lines: Sequence[str]) -> None:
            with self._lock:
                tail.add_lines(lines)
                self._unwritten[run_id, step_number] = tail
                self._schedule_write()

        try:
            yield tail, on_output
        finally:
            with self._lock:
                self._unwritten.pop((run_id, step_number), None)
            with self._writing:  # wait for a write in progress
                pass

    def _schedule_write(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(self._pause, self._write_unwritten)
            self._timer.daemon = True
            self._timer.start()

    def _write_unwritten(self) -> None:
        with self._writing:
            with self._lock:
                self._timer = None
                pending = [
                    (*key, tail.total_lines, [*tail.newest_lines])
                    for key, tail in self._unwritten.items()
                ]
                self._unwritten.clear()
            begun, redactor = time.monotonic(), self._database.redactor
            # Secrets are removed before the transaction, to keep it short.
            redacted = [
                live_output.prepare_lines(redactor, r, n, total=t, lines=lines)
                for r, n, t, lines in pending
            ]
            try:
                with self._database.transaction() as tx:
                    live_output.store_lines(tx, redacted)
            except StoreUnavailable as error:
                log.debug("live output was not stored: %s", error)
            self._pause = max(_PAUSE, _REST * (time.monotonic() - begun))
