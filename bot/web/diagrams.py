"""Pictures of what a check found, where one look tells more than a table. Pure.

They are drawn from the report alone, each with the same in words. What does not look as expected
is not drawn: the report's table stands below in any case.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.model import times
from bot.model.run import Run, State
from bot.model.run_states import RUN_STATUS_DISPLAYS, Tone, get_run_display
from runbooks import Report

# A mark is some pixels wide, however short what it stands for was: none sticks out at the end.
_MAX_POSITION = 99.0
_LANE_NAMES = ("Done", "Went wrong", "Not done", "Open")
_FAILED_STATES = frozenset({State.FAILED, State.UNKNOWN, State.STOPPED, State.STALE})
_SUCCESSFUL_STATES = frozenset({State.SUCCEEDED, State.NO_CHANGES})
_TICK_COUNT = 6


@dataclass(frozen=True)
class TimelineMark:
    """One change. x: where it begins; width: how long it took; lane: from above, the first is 0.

    title: what a pointer that rests on it reads.
    """

    x: float
    width: float
    lane: int
    tone: str
    title: str


@dataclass(frozen=True)
class ChangeTimeline:
    """lanes: their names and how many marks each has. words: all of it in a sentence."""

    lanes: Sequence[tuple[str, int]]
    marks: Sequence[TimelineMark]
    ticks: Sequence[float]
    since: int
    until: int
    description: str


def build_timeline(runs: Sequence[Run], *, since: int, until: int) -> ChangeTimeline:
    """Lay out the changes of a stretch of time, each in the lane of what became of it."""
    marks = [_build_mark(run, since, until) for run in runs]
    counts = [sum(mark.lane == lane for mark in marks) for lane in range(len(_LANE_NAMES))]
    told = [f"{n} {name.lower()}" for name, n in zip(_LANE_NAMES, counts, strict=True) if n]
    noun = "change" if len(runs) == 1 else "changes"
    words = f"{len(runs)} {noun} in {times.format_span(until - since)}"
    return ChangeTimeline(
        lanes=list(zip(_LANE_NAMES, counts, strict=True)),
        marks=marks,
        ticks=[100 * n / _TICK_COUNT for n in range(1, _TICK_COUNT)],
        since=since,
        until=until,
        description=f"{words}: {', '.join(told)}" if told else words,
    )


def _build_mark(run: Run, since: int, until: int) -> TimelineMark:
    begin = run.started_at or run.requested_at
    end = run.ended_at if run.ended_at is not None else until if run.started_at else begin
    x = min(compute_position(begin, since, until), _MAX_POSITION)
    shown = get_run_display(run)
    return TimelineMark(
        x=x,
        width=max(compute_position(end, since, until) - x, 0),
        lane=_get_lane(run.state),
        tone=shown.tone,
        title=f"{shown.label}: {run.title}, {times.format_utc(begin)}",
    )


def _get_lane(state: State) -> int:
    if state in _SUCCESSFUL_STATES:
        return 0
    if state in _FAILED_STATES:
        return 1
    return 2 if RUN_STATUS_DISPLAYS[state].tone in {Tone.NEUTRAL, Tone.DANGER} else 3


def compute_position(moment: int, since: int, until: int) -> float:
    """Return where a moment lies between two others, in hundredths, kept between them."""
    return round(min(max((moment - since) / max(until - since, 1), 0), 1) * 100, 3)


_PERCENT = re.compile(r"\b(\d{1,3}(?:\.\d+)?) % done", re.ASCII)
_MAX_BRANCHES = 24
_MAX_LABEL_LENGTH = 20
# Units of the picture: a branch's height, and how much is left free below it.
_HEIGHT, _STEP = 28, 38


@dataclass(frozen=True)
class ProgressGauge:
    """How far something is, in hundredths. words: the same, and whatever else is known of it."""

    percent: float
    description: str


@dataclass(frozen=True)
class Branch:
    """One of several that carry something together. y: where its box begins."""

    name: str
    state: str
    is_good: bool
    y: int

    @property
    def middle(self) -> float:
        return self.y + _HEIGHT / 2


@dataclass(frozen=True)
class RedundancyTree:
    """What hangs on what: *root* is carried by the branches, and by each as long as it is good."""

    root: str
    condition: str
    branches: Sequence[Branch]

    @property
    def height(self) -> int:
        return len(self.branches) * _STEP - (_STEP - _HEIGHT)

    @property
    def description(self) -> str:
        good = sum(branch.is_good for branch in self.branches)
        each = ", ".join(f"{branch.name} {branch.state}" for branch in self.branches)
        return f"{self.root}: {good} of {len(self.branches)} {self.condition} ({each})"


@dataclass(frozen=True)
class _TreeColumns:
    """How a table is read: which columns name a branch and its state, and which states are good.

    root: the field of the request that names what they carry, or a word for it.
    """

    name_column: str
    state_column: str
    good_states: frozenset[str]
    root_field: str
    condition: str


_TREE_COLUMNS: Mapping[str, _TreeColumns] = {
    "bond check": _TreeColumns("Member", "Link", frozenset({"up"}), "bond", "members have a link"),
    "zfs scrub status": _TreeColumns(
        "Device", "State", frozenset({"online", "avail"}), "pool", "devices work"
    ),
    "hsrp check": _TreeColumns(
        "Router",
        "State",
        frozenset({"active", "standby", "master", "backup"}),
        "the gateway",
        "routers can carry it",
    ),
}


def build_gauge(report: Report) -> ProgressGauge | None:
    """Return how far it is, where the report tells so and it is still under way."""
    found = _PERCENT.search(report.summary)
    if found is None:
        return None
    return ProgressGauge(min(float(found[1]), 100.0), report.summary)


def build_tree(run: Run) -> RedundancyTree | None:
    """Return what hangs on what, for the checks that look at such a thing."""
    reading, report = _TREE_COLUMNS.get(run.runbook), run.report
    if reading is None or report is None or report.table is None:
        return None
    columns = list(report.table.columns)
    if columns[:1] != [reading.name_column] or reading.state_column not in columns:
        return None
    state = columns.index(reading.state_column)
    rows = [row for row in report.table.rows if len(row) == len(columns)]
    if not 1 <= len(rows) <= _MAX_BRANCHES:
        return None
    branches = [
        Branch(
            _shorten_label(row[0]),
            _shorten_label(row[state]),
            row[state].lower() in reading.good_states,
            n * _STEP,
        )
        for n, row in enumerate(rows)
    ]
    return RedundancyTree(
        _shorten_label(run.values.get(reading.root_field, reading.root_field)),
        reading.condition,
        branches,
    )


def _shorten_label(text: str) -> str:
    return text if len(text) <= _MAX_LABEL_LENGTH else f"{text[: _MAX_LABEL_LENGTH - 1]}…"
