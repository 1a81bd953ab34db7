"""Slots of live streams: how many may be open, in total and per person."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock


class NoFreeSlotError(Exception):
    """Too many streams are open. The page polls instead."""


@dataclass(frozen=True)
class StreamLimits:
    """Intervals and limits of streams."""

    poll_seconds: float = 0.5
    """Time between two reads of the database, which all readers of a run share."""
    session_check_seconds: float = 10.0
    """Time after which the session of the reader is checked again."""
    keepalive_seconds: float = 15.0
    """Time without events after which a comment is sent."""
    send_timeout_seconds: float = 20.0
    """Time within which a reader has to receive what was sent."""
    max_seconds: float = 900.0
    """Time after which a stream ends; the browser then reconnects and continues."""
    max_per_person: int = 8
    max_in_total: int = 600


@dataclass
class StreamSlots:
    """The open streams, by person."""

    limits: StreamLimits = field(default_factory=StreamLimits)
    _taken_by_person: Counter[str] = field(default_factory=Counter[str])
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def take_slot(self, person: str) -> Generator[None]:
        """Hold a slot for the duration of the context.

        Raises:
            NoFreeSlotError: The person, or everyone together, has too many open streams.
        """
        with self._lock:
            by_person, total = self._taken_by_person[person], self._taken_by_person.total()
            if by_person >= self.limits.max_per_person or total >= self.limits.max_in_total:
                raise NoFreeSlotError
            self._taken_by_person[person] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken_by_person[person] -= 1
