"""Pictures of what a check found, where one look tells more than a table. Pure.

They are drawn from the report alone, each with the same in words. What does not look as expected
is not drawn: the report's table stands below in any case.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.run import Run
from runbooks import Report

_PERCENT = re.compile(r"\b(\d{1,3}(?:\.\d+)?) % done", re.ASCII)
_MOST_BRANCHES = 24
_LONGEST = 20
# Units of the picture: a branch's height, and how much is left free below it.
_HEIGHT, _STEP = 28, 38


@dataclass(frozen=True)
class Gauge:
    """How far something is, in hundredths. words: the same, and whatever else is known of it."""

    percent: float
    words: str


@dataclass(frozen=True)
class Branch:
    """One of several that carry something together. y: where its box begins."""

    name: str
    state: str
    good: bool
    y: int

    @property
    def middle(self) -> float:
        return self.y + _HEIGHT / 2


@dataclass(frozen=True)
class Tree:
    """What hangs on what: *root* is carried by the branches, and by each as long as it is good."""

    root: str
    what: str
    branches: Sequence[Branch]

    @property
    def height(self) -> int:
        return len(self.branches) * _STEP - (_STEP - _HEIGHT)

    @property
    def words(self) -> str:
        good = sum(branch.good for branch in self.branches)
        each = ", ".join(f"{branch.name} {branch.state}" for branch in self.branches)
        return f"{self.root}: {good} of {len(self.branches)} {self.what} ({each})"


@dataclass(frozen=True)
class _Reading:
    """How a table is read: which columns name a branch and its state, and which states are good.

    root: the field of the request that names what they carry, or a word for it.
    """

    name: str
    state: str
    good: frozenset[str]
    root: str
    what: str


_READINGS: Mapping[str, _Reading] = {
    "bond check": _Reading("Member", "Link", frozenset({"up"}), "bond", "members have a link"),
    "zfs scrub status": _Reading(
        "Device", "State", frozenset({"online", "avail"}), "pool", "devices work"
    ),
    "hsrp check": _Reading(
        "Router",
        "State",
        frozenset({"active", "standby", "master", "backup"}),
        "the gateway",
        "routers can carry it",
    ),
}


def gauge(report: Report) -> Gauge | None:
    """Return how far it is, where the report tells so and it is still under way."""
    found = _PERCENT.search(report.summary)
    if found is None:
        return None
    return Gauge(min(float(found[1]), 100.0), report.summary)


def tree(run: Run) -> Tree | None:
    """Return what hangs on what, for the checks that look at such a thing."""
    reading, report = _READINGS.get(run.words), run.report
    if reading is None or report is None or report.table is None:
        return None
    columns = list(report.table.columns)
    if columns[:1] != [reading.name] or reading.state not in columns:
        return None
    state = columns.index(reading.state)
    rows = [row for row in report.table.rows if len(row) == len(columns)]
    if not 1 <= len(rows) <= _MOST_BRANCHES:
        return None
    branches = [
        Branch(_short(row[0]), _short(row[state]), row[state].lower() in reading.good, n * _STEP)
        for n, row in enumerate(rows)
    ]
    return Tree(_short(run.fields.get(reading.root, reading.root)), reading.what, branches)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
