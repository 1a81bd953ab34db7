"""Pictures of what a check found, where one look tells more than a table. Pure.

They are drawn from the report alone, each with the same in words. What does not look as expected
is not drawn: the report's table stands below in any case.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.model import times
from bot.model.run import Run, State
from bot.model.run_states import STATUSES, Tone, describe_run
from runbooks import Report

# A mark is some pixels wide, however short what it stands for was: none sticks out at the end.
_LAST = 99.0
_LANES = ("Done", "Went wrong", "Not done", "Open")
_WRONG = frozenset({State.FAILED, State.UNKNOWN, State.STOPPED, State.STALE})
_DONE = frozenset({State.SUCCEEDED, State.UNCHANGED})
_TICKS = 6


@dataclass(frozen=True)
class Mark:
    """One change. x: where it begins; width: how long it took; lane: from above, the first is 0.

    title: what a pointer that rests on it reads.
    """

    x: float
    width: float
    lane: int
    tone: str
    title: str


@dataclass(frozen=True)
class Timeline:
    """lanes: their names and how many marks each has. words: all of it in a sentence."""

    lanes: Sequence[tuple[str, int]]
    marks: Sequence[Mark]
    ticks: Sequence[float]
    since: int
    until: int
    words: str


def timeline(runs: Sequence[Run], *, since: int, until: int) -> Timeline:
    """Lay out the changes of a stretch of time, each in the lane of what became of it."""
    marks = [_mark(run, since, until) for run in runs]
    counts = [sum(mark.lane == lane for mark in marks) for lane in range(len(_LANES))]
    told = [f"{n} {name.lower()}" for name, n in zip(_LANES, counts, strict=True) if n]
    noun = "change" if len(runs) == 1 else "changes"
    words = f"{len(runs)} {noun} in {times.format_span(until - since)}"
    return Timeline(
        lanes=list(zip(_LANES, counts, strict=True)),
        marks=marks,
        ticks=[100 * n / _TICKS for n in range(1, _TICKS)],
        since=since,
        until=until,
        words=f"{words}: {', '.join(told)}" if told else words,
    )


def _mark(run: Run, since: int, until: int) -> Mark:
    begin = run.started or run.asked
    end = run.ended if run.ended is not None else until if run.started else begin
    x = min(place(begin, since, until), _LAST)
    shown = describe_run(run)
    return Mark(
        x=x,
        width=max(place(end, since, until) - x, 0),
        lane=_lane(run.state),
        tone=shown.tone,
        title=f"{shown.label}: {run.title}, {times.format_utc(begin)}",
    )


def _lane(state: State) -> int:
    if state in _DONE:
        return 0
    if state in _WRONG:
        return 1
    return 2 if STATUSES[state].tone in {Tone.NEUTRAL, Tone.DANGER} else 3


def place(at: int, since: int, until: int) -> float:
    """Return where a moment lies between two others, in hundredths, kept between them."""
    return round(min(max((at - since) / max(until - since, 1), 0), 1) * 100, 3)


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
