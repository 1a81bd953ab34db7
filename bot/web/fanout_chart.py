"""Chart of the progress of a run on several hosts. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bot.db.run_progress import RunProgress, RunProgressPart
from bot.model.run import ENDED_STATES, Run, State
from bot.model.run_states import (
    OUTCOMES,
    Outcome,
    describe_outcome,
    get_child_run_display,
    is_on_hold,
)
from bot.web.badges import HostTile
from bot.web.templating import render_code, render_part

_MAX_SQUARES = 500
_ChildRun = Run | RunProgressPart


@dataclass(frozen=True)
class OutcomeGroup:
    """How the chart shows the child runs of an outcome. `label` follows their number."""

    css_class: str
    icon: str
    label: str


OUTCOME_GROUPS: Mapping[Outcome, OutcomeGroup] = {
    Outcome.SUCCEEDED: OutcomeGroup("done", "check", "succeeded"),
    Outcome.NEEDS_ATTENTION: OutcomeGroup("attention", "alert", "needing attention"),
    Outcome.FAILED: OutcomeGroup("failed", "cross", "failed"),
    Outcome.UNKNOWN: OutcomeGroup("unknown", "question", "with an unknown outcome"),
    Outcome.IN_PROGRESS: OutcomeGroup("active", "play", "in progress"),
    Outcome.NOT_STARTED: OutcomeGroup("pending", "clock", "not started"),
    Outcome.NOT_RUN: OutcomeGroup("not-run", "ban", "not run"),
}
_ON_HOLD = OutcomeGroup("pending", "clock", "on hold")


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
    squares: Sequence[HostTile]
    ended_count: int
    elapsed: int | None
    """Microseconds since the start; None before it."""
    expected_end: int | None
    """When the rest ends if it takes as long as the hosts that ended; None if that is unknown."""
    is_ended: bool
    unit: str = "hosts"

    @property
    def description(self) -> str:
        """Return the chart as text."""
        counts = ", ".join(f"{count} {group.label}" for group, count in self.group_counts)
        return f"{self.ended_count} of {self.total} {self.unit} done: {counts}"

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
    child_runs: Sequence[_ChildRun], parent: _ChildRun, *, now: int
) -> FanoutChart:
    """Return the chart of the child runs. Times are microseconds since 1970."""
    counts = Counter(map(_get_group, child_runs))
    group_counts = [
        (group, counts[group]) for group in (*OUTCOME_GROUPS.values(), _ON_HOLD) if counts[group]
    ]
    started, ended = parent.started_at, parent.ended_at
    elapsed = None if started is None else (ended or now) - started
    squares = (
        [*_build_squares(child_runs, parent.state)] if len(child_runs) <= _MAX_SQUARES else []
    )
    return FanoutChart(
        total=len(child_runs),
        group_counts=group_counts,
        squares=squares,
        ended_count=sum(child.state in ENDED_STATES for child in child_runs),
        elapsed=elapsed,
        expected_end=_estimate_end(child_runs, now=now),
        is_ended=ended is not None,
        # Only a sequence has several child runs on one host.
        unit="hosts"
        if len({child.host for child in child_runs}) == len(child_runs)
        else "changes",
    )


def _get_group(child: _ChildRun) -> OutcomeGroup:
    return _ON_HOLD if is_on_hold(child) else OUTCOME_GROUPS[OUTCOMES[child.status]]


def _estimate_end(child_runs: Sequence[_ChildRun], *, now: int) -> int | None:
    """Return when all end if each takes the median, with as many at once as run now."""
    lengths = [
        child.ended_at - child.started_at
        for child in child_runs
        if child.state is State.SUCCEEDED and child.started_at and child.ended_at
    ]
    ages = [
        now - (child.started_at or now) for child in child_runs if child.state is State.RUNNING
    ]
    if not lengths or not ages or any(map(is_on_hold, child_runs)):
        return None
    usual = median(lengths)
    upcoming = sum(child.state not in ENDED_STATES for child in child_runs) - len(ages)
    work = upcoming * usual + sum(max(usual - age, 0) for age in ages)
    return now + round(work / len(ages))


def _build_squares(child_runs: Sequence[_ChildRun], parent_state: State) -> Iterable[HostTile]:
    for child in child_runs:
        group = _get_group(child)
        css_class = f"kt-outcome-{group.css_class}"
        label = get_child_run_display(child, parent_state).label
        yield HostTile(child.host, f"/runs/{child.id}", css_class, group.icon, label)


def render_fanout(progress: RunProgress) -> str:
    """Return the chart as HTML."""
    chart = build_fanout_chart(progress.children, progress.run, now=progress.now)
    return render_part("run_fanout.html", fanout=chart)


def render_host_rows(
    child_runs: Iterable[_ChildRun], parent_state: State
) -> list[Mapping[str, object]]:
    """Return the id, badge and summary of each child run, the latter two as HTML."""
    return [
        {
            "id": child.id,
            "badge": render_part("run_badge.html", child=child, parent_state=parent_state),
            "summary": render_code(describe_outcome(child) or "–"),
        }
        for child in child_runs
    ]
