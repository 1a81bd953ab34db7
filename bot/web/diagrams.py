"""Diagrams of reports and of the changes of a host. Pure.

Each diagram is computed from a report alone and has a text description. A report with an
unexpected shape gets no diagram; its table is shown in any case.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.model import times
from bot.model.run import Run
from bot.model.run_states import OUTCOMES, PROBLEM_OUTCOMES, Outcome, get_run_display
from bot.model.text import format_count
from runbooks import Report

# Marks have a minimum width in pixels. This keeps the last one inside the chart.
_MAX_POSITION = 99.0
_LANE_NAMES = ("Succeeded", "Failed or unknown", "Not run", "Open")
_TICK_COUNT = 6
# So many hosts have a lane each.
_MAX_LANES = 12
ANY_HOST = "any host"


@dataclass(frozen=True)
class HostTile:
    """The tile of one host in the map of hosts."""

    name: str
    url: str
    css_class: str
    icon: str
    label: str


@dataclass(frozen=True)
class TimelineMark:
    """One change on a timeline."""

    x: float
    """Position of its start, in percent of the period."""
    width: float
    """Duration, in percent of the period."""
    lane: int
    """Index of the lane, from the top."""
    tone: str
    title: str
    """Tooltip text."""


@dataclass(frozen=True)
class ChangeTimeline:
    """The changes of a period, in a lane per outcome."""

    lanes: Sequence[tuple[str, int]]
    """Name and number of marks of each lane."""
    marks: Sequence[TimelineMark]
    ticks: Sequence[float]
    """Positions of the vertical lines, in percent."""
    since: int
    until: int
    description: str
    """The chart as a sentence."""
    chosen: float | None = None
    """Position of the chosen time, in percent; None if the chart is about the time until now."""


@dataclass(frozen=True)
class LaneEvent:
    """An event to show in the lanes of its hosts. at: microseconds since 1970."""

    at: int
    hosts: Sequence[str]
    tone: str
    title: str


def build_host_lanes(
    events: Sequence[LaneEvent], *, at: int, span: int, now: int
) -> ChangeTimeline:
    """Return the events before and after a time, in a lane per host: those with most events."""
    since, until = at - span, min(at + span, now)
    counts = Counter(host for event in events for host in event.hosts or (ANY_HOST,))
    lanes = counts.most_common(_MAX_LANES)
    index = {host: n for n, (host, _) in enumerate(lanes)}
    marks = [
        TimelineMark(
            min(compute_position(event.at, since, until), _MAX_POSITION),
            0,
            index[host],
            event.tone,
            f"{event.title}, {times.format_utc(event.at)}",
        )
        for event in events
        for host in event.hosts or (ANY_HOST,)
        if host in index
    ]
    more = len(counts) - len(lanes)
    return ChangeTimeline(
        lanes=lanes,
        marks=marks,
        ticks=[],
        since=since,
        until=until,
        description=f"{format_count(len(events), 'event')} on {format_count(len(counts), 'host')}"
        + (f", {more} not shown" if more else ""),
        chosen=compute_position(at, since, until),
    )


def build_timeline(runs: Sequence[Run], *, since: int, until: int) -> ChangeTimeline:
    """Return the timeline of the changes between two times, in microseconds."""
    marks = [_build_mark(run, since, until) for run in runs]
    counts = [sum(mark.lane == lane for mark in marks) for lane in range(len(_LANE_NAMES))]
    lane_counts = [f"{n} {name.lower()}" for name, n in zip(_LANE_NAMES, counts, strict=True) if n]
    noun = "change" if len(runs) == 1 else "changes"
    summary = f"{len(runs)} {noun} in {times.format_span(until - since)}"
    return ChangeTimeline(
        lanes=list(zip(_LANE_NAMES, counts, strict=True)),
        marks=marks,
        ticks=[100 * n / _TICK_COUNT for n in range(1, _TICK_COUNT)],
        since=since,
        until=until,
        description=f"{summary}: {', '.join(lane_counts)}" if lane_counts else summary,
    )


def _build_mark(run: Run, since: int, until: int) -> TimelineMark:
    begin = run.started_at or run.requested_at
    end = run.ended_at if run.ended_at is not None else until if run.started_at else begin
    x = min(compute_position(begin, since, until), _MAX_POSITION)
    display = get_run_display(run)
    return TimelineMark(
        x=x,
        width=max(compute_position(end, since, until) - x, 0),
        lane=_get_lane(run),
        tone=display.tone,
        title=f"{display.label}: {run.title}, {times.format_utc(begin)}",
    )


def _get_lane(run: Run) -> int:
    outcome = OUTCOMES[run.status]
    if outcome in {Outcome.SUCCEEDED, Outcome.NEEDS_ATTENTION}:
        return 0
    if outcome in PROBLEM_OUTCOMES:
        return 1
    return 2 if outcome is Outcome.NOT_RUN else 3


def compute_position(time: int, since: int, until: int) -> float:
    """Return the position of a time between two others in percent, from 0 to 100."""
    return round(min(max((time - since) / max(until - since, 1), 0), 1) * 100, 3)


_PERCENT = re.compile(r"\b(\d{1,3}(?:\.\d+)?) % done", re.ASCII)
_MAX_BRANCHES = 24
_MAX_LABEL_LENGTH = 20
# Height of the box of a branch, and the distance from one box to the next, in SVG units.
_HEIGHT, _STEP = 28, 38


@dataclass(frozen=True)
class ProgressGauge:
    """Progress in percent."""

    percent: float
    description: str


@dataclass(frozen=True)
class Branch:
    """One member of a redundant group."""

    name: str
    state: str
    is_good: bool
    y: int
    """Top of its box, in SVG units."""

    @property
    def middle(self) -> float:
        return self.y + _HEIGHT / 2


@dataclass(frozen=True)
class RedundancyTree:
    """A redundant group: *root* works as long as at least one branch is good."""

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
    """The columns of a report table that hold the branches of a tree."""

    name_column: str
    state_column: str
    good_states: frozenset[str]
    root_field: str
    """Field of the request that names the root, or a fixed name."""
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
        "routers can forward",
    ),
}


def build_gauge(report: Report) -> ProgressGauge | None:
    """Return the progress in a report, or None if the report has none."""
    match = _PERCENT.search(report.summary)
    if match is None:
        return None
    return ProgressGauge(min(float(match[1]), 100.0), report.summary)


def build_tree(run: Run) -> RedundancyTree | None:
    """Return the redundancy tree of a check, or None if its report has none."""
    tree_columns, report = _TREE_COLUMNS.get(run.runbook), run.report
    if tree_columns is None or report is None or report.table is None:
        return None
    columns = list(report.table.columns)
    if columns[:1] != [tree_columns.name_column] or tree_columns.state_column not in columns:
        return None
    state = columns.index(tree_columns.state_column)
    rows = [row for row in report.table.rows if len(row) == len(columns)]
    if not 1 <= len(rows) <= _MAX_BRANCHES:
        return None
    branches = [
        Branch(
            _shorten_label(row[0]),
            _shorten_label(row[state]),
            row[state].lower() in tree_columns.good_states,
            n * _STEP,
        )
        for n, row in enumerate(rows)
    ]
    return RedundancyTree(
        _shorten_label(run.values.get(tree_columns.root_field, tree_columns.root_field)),
        tree_columns.condition,
        branches,
    )


def _shorten_label(text: str) -> str:
    return text if len(text) <= _MAX_LABEL_LENGTH else f"{text[: _MAX_LABEL_LENGTH - 1]}…"
