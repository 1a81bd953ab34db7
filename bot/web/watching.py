"""Watching: what is new to one reader of a run, from one look at it to the next. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.store.glances import Glance, Part
from bot.store.heard import Heard
from bot.visible import visible

# Lines of one look that a reader is sent in all, however many hosts speak; and of each at least.
MOST_LINES, LEAST_LINES = 400, 2
# As a position is handed back after a break, so much is told again: it may have come meanwhile.
_AGAIN = 6_000_000

News = tuple[str, Any]


@dataclass
class Watching:
    """since: up to when the reader knows what was said; 0 if nothing of it."""

    since: int = 0
    _stamp: str = ""
    _said: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    _parts: dict[int, int] = field(default_factory=dict[int, int])
    _first: bool = True

    def news(self, glance: Glance) -> list[News]:
        """Return the events that a reader has not had yet, each with what it tells."""
        moved = glance.stamp if glance.stamp != self._stamp else ""
        self._stamp = glance.stamp
        told: list[News] = [
            ("moved", moved),
            ("parts", self._changed(glance.parts)),
            ("said", [*self._new_lines(glance.heard)]),
            ("silent", self._silent(glance.heard)),
        ]
        self._first = False
        return [(name, what) for name, what in told if what]

    @staticmethod
    def position(glance: Glance) -> int:
        """Return from where a reader that broke off goes on."""
        return glance.now - _AGAIN

    def _changed(self, parts: Sequence[Part]) -> list[Part]:
        changed = [part for part in parts if self._parts.get(part.id) != part.version]
        self._parts = {part.id: part.version for part in parts}
        return changed

    def _new_lines(self, heard: Sequence[Heard]) -> Iterator[Mapping[str, Any]]:
        if self._first:
            known = [one for one in heard if one.at <= self.since]
            self._said = {(one.run, one.n): one.total for one in known}
        speaking = [one for one in heard if one.total > self._said.get((one.run, one.n), 0)]
        most = max(LEAST_LINES, MOST_LINES // max(len(speaking), 1))
        for one in speaking:
            had = self._said.get((one.run, one.n))
            fresh = one.total - (had or 0)
            lines = one.newest[-min(fresh, most) :]
            self._said[one.run, one.n] = one.total
            yield {
                "key": f"{one.run}-{one.n}",
                "host": visible(one.host),
                "n": one.n,
                "total": one.total,
                "anew": had is None,
                "left_out": fresh - len(lines),
                "lines": [visible(line) for line in lines],
            }

    def _silent(self, heard: Sequence[Heard]) -> list[str]:
        """Return those of which no more is heard: what they said is with their step."""
        there = {(one.run, one.n) for one in heard}
        gone = [key for key in self._said if key not in there]
        for key in gone:
            del self._said[key]
        return [f"{run}-{n}" for run, n in gone]
