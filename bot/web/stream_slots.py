"""Seats: how many watch at once, each in a stream of their own, and for how long at a time."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock


class NoFreeSlotError(Exception):
    """Too many watch already; whoever is turned away looks again by themselves."""


@dataclass(frozen=True)
class StreamLimits:
    """look: seconds between two looks at the database, shared by all who watch the same run.

    check: seconds after which it is looked up whether somebody is still signed in. beat: seconds
    of silence after which a sign of life is sent. patience: seconds that a reader may take for
    what was sent. longest: seconds after which a stream ends, and is taken up where it ended.
    """

    poll_seconds: float = 0.5
    session_check_seconds: float = 10.0
    keepalive_seconds: float = 15.0
    send_timeout_seconds: float = 20.0
    max_seconds: float = 900.0
    max_per_person: int = 8
    max_in_total: int = 300


@dataclass
class StreamSlots:
    """Who watches now."""

    limits: StreamLimits = field(default_factory=StreamLimits)
    _taken_by_person: Counter[str] = field(default_factory=Counter[str])
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def take_slot(self, person: str) -> Generator[None]:
        """Hold a seat for as long as somebody watches. Raises Full."""
        with self._lock:
            mine, all_of_them = self._taken_by_person[person], self._taken_by_person.total()
            if mine >= self.limits.max_per_person or all_of_them >= self.limits.max_in_total:
                raise NoFreeSlotError
            self._taken_by_person[person] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken_by_person[person] -= 1
