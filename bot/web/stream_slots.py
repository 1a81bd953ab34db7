"""Seats: how many watch at once, each in a stream of their own, and for how long at a time."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock


class Full(Exception):
    """Too many watch already; whoever is turned away looks again by themselves."""


@dataclass(frozen=True)
class Terms:
    """look: seconds between two looks at the database, shared by all who watch the same run.

    check: seconds after which it is looked up whether somebody is still signed in. beat: seconds
    of silence after which a sign of life is sent. patience: seconds that a reader may take for
    what was sent. longest: seconds after which a stream ends, and is taken up where it ended.
    """

    look: float = 0.5
    check: float = 10.0
    beat: float = 15.0
    patience: float = 20.0
    longest: float = 900.0
    of_one_person: int = 8
    in_all: int = 300


@dataclass
class Seats:
    """Who watches now."""

    terms: Terms = field(default_factory=Terms)
    _taken: Counter[str] = field(default_factory=Counter[str])
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def taken(self, person: str) -> Generator[None]:
        """Hold a seat for as long as somebody watches. Raises Full."""
        with self._lock:
            mine, all_of_them = self._taken[person], self._taken.total()
            if mine >= self.terms.of_one_person or all_of_them >= self.terms.in_all:
                raise Full
            self._taken[person] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[person] -= 1
