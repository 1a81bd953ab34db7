"""Listening: what hosts say while a step runs there is kept for whoever watches, and only so long.

A host is never waited for by those who watch it, nor they by it: what comes faster than it can be
written is left out, and what cannot be written at all is not written.
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

# Seconds between two writings, and how much longer than the last one took the pause is at least.
_PAUSE, _REST = 0.4, 5


class OutputTail:
    """The newest lines that were heard of one step, and how many there were in all."""

    def __init__(self) -> None:
        self.total_lines = 0
        self.newest_lines: deque[str] = deque(maxlen=2 * live_output.MOST_LINES)
        self._characters = 0

    def add_lines(self, lines: Sequence[str]) -> None:
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
        """What was heard, in the place of an answer that never came to its end."""
        left_out = self.total_lines - len(self.newest_lines)
        gap = [f"[… {left_out} lines are left out here …]"] if left_out else []
        return "\n".join([*gap, *self.newest_lines])


class LiveOutputWriter:
    """Writes what all steps of this process say, in one transaction at a time."""

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

        After the block nothing is written of the step any more.
        """
        tail = OutputTail()

        def hear(lines: Sequence[str]) -> None:
            with self._lock:
                tail.add_lines(lines)
                self._unwritten[run_id, step_number] = tail
                self._schedule_write()

        try:
            yield tail, hear
        finally:
            with self._lock:
                self._unwritten.pop((run_id, step_number), None)
            with self._writing:  # what is being written just now is there to be forgotten
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
                said = [
                    (*key, tail.total_lines, [*tail.newest_lines])
                    for key, tail in self._unwritten.items()
                ]
                self._unwritten.clear()
            begun, redactor = time.monotonic(), self._database.redactor
            # Secrets are taken out before, since nobody else can write meanwhile.
            kept = [
                live_output.newest_lines(redactor, r, n, total=t, lines=lines)
                for r, n, t, lines in said
            ]
            try:
                with self._database.transaction() as tx:
                    live_output.store_lines(tx, kept)
            except StoreUnavailable as trouble:
                log.debug("what hosts say is not written: %s", trouble)
            self._pause = max(_PAUSE, _REST * (time.monotonic() - begun))
