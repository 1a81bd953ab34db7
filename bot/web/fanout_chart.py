"""Chart of the progress of a run on several hosts. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.db.run_progress import RunProgress
from bot.model.run import ENDED_STATES, NEEDS_ATTENTION, State
from bot.model.run_states import RUN_STATUS_DISPLAYS
from bot.web.templating import render_code, render_part

_MAX_SQUARES = 500


class _ChildRun(Protocol):
    """The fields of a child run that the chart needs."""

    @property
    def id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def status(self) -> str: ...
    @property
    def summary(self) -> str: ...


@dataclass(frozen=True)
class OutcomeGroup:
    """Statuses of child runs that the chart shows alike. `label` follows their number."""

    css_class: str
    icon: str
    label: str
    statuses: frozenset[str]


_S = State
OUTCOME_GROUPS = (
    OutcomeGroup("done", "check", "succeeded", frozenset({_S.SUCCEEDED, _S.NO_CHANGES})),
    OutcomeGroup("attention", "alert", "needing attention", frozenset({NEEDS_ATTENTION})),
    OutcomeGroup(
        "failed",
        "cross",
        "failed",
        frozenset({_S.FAILED, _S.STALE, _S.REFUSED, _S.DENIED, _S.EXPIRED, _S.SUPERSEDED}),
    ),
    OutcomeGroup("unknown", "question", "with an unknown outcome", frozenset({_S.UNKNOWN})),
    OutcomeGroup(
        "active",
        "play",
        "in progress",
        frozenset({_S.PLANNING, _S.QUEUED, _S.STARTING, _S.RUNNING}),
    ),
    OutcomeGroup(
        "pending", "clock", "pending", frozenset({_S.PLANNED, _S.PENDING, _S.COUNTER_PROPOSED})
    ),
    OutcomeGroup("not-run", "ban", "not run", frozenset({_S.WITHDRAWN, _S.STOPPED})),
)
_GROUP_OF_STATUS = {status: group for group in OUTCOME_GROUPS for status in group.statuses}


@dataclass(frozen=True)
class Square:
    """The tile of one host in the map of hosts."""

    name: str
    url: str
    css_class: str
    icon: str
    label: str


@dataclass(frozen=True)
class BarSegment:
    """A segment of the bar, in percent of its width."""

    x: float
    width: float
    css_class: str


@dataclass(frozen=True)
class FanoutChart:
    """The progress of all child runs."""

    total: int
    group_counts: Sequence[tuple[OutcomeGroup, int]]
    """Number of hosts in each group; groups without hosts are left out."""
    squares: Sequence[Square]
    ended_count: int
    elapsed: int | None
    """Microseconds since the start; None before it."""
    is_ended: bool

    @property
    def description(self) -> str:
        """Return the chart as text."""
        counts = ", ".join(f"{count} {group.label}" for group, count in self.group_counts)
        return f"{self.ended_count} of {self.total} hosts done: {counts}"

    @property
    def bar_segments(self) -> Sequence[BarSegment]:
        segments: list[BarSegment] = []
        x = 0.0
        for group, count in self.group_counts:
            width = 100 * count / self.total
            segments.append(BarSegment(round(x, 3), round(width, 3), group.css_class))
            x += width
        return segments


def build_fanout_chart(
    child_runs: Sequence[_ChildRun], *, started: int | None, ended: int | None, now: int
) -> FanoutChart:
    """Return the chart of the child runs. Times are microseconds since 1970."""
    counts = Counter(_GROUP_OF_STATUS[child.status].css_class for child in child_runs)
    group_counts = [
        (group, counts[group.css_class]) for group in OUTCOME_GROUPS if counts[group.css_class]
    ]
    elapsed = None if started is None else (ended or now) - started
    squares = [*_build_squares(child_runs)] if len(child_runs) <= _MAX_SQUARES else []
    return FanoutChart(
        total=len(child_runs),
        group_counts=group_counts,
        squares=squares,
        ended_count=sum(child.state in ENDED_STATES for child in child_runs),
        elapsed=elapsed,
        is_ended=ended is not None,
    )


def _build_squares(child_runs: Sequence[_ChildRun]) -> Iterable[Square]:
    for child in child_runs:
        group = _GROUP_OF_STATUS[child.status]
        css_class, label = f"kt-outcome-{group.css_class}", RUN_STATUS_DISPLAYS[child.status].label
        yield Square(child.host, f"/runs/{child.id}", css_class, group.icon, label)


def render_fanout(progress: RunProgress) -> str:
    """Return the chart as HTML."""
    whole = progress.run
    chart = build_fanout_chart(
        progress.children, started=whole.started_at, ended=whole.ended_at, now=progress.now
    )
    return render_part("run_fanout.html", fanout=chart)


def render_host_rows(
    child_runs: Iterable[_ChildRun], *, has_started: bool
) -> list[Mapping[str, object]]:
    """Return the id, badge and summary of each child run, the latter two as HTML."""
    return [
        {
            "id": child.id,
            "badge": render_part("run_badge.html", status=child.status, has_started=has_started),
            "summary": render_code(child.summary or "–"),
        }
        for child in child_runs
    ]
