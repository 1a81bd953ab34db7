"""A fan: how far a request for several hosts is, drawn and in words. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.db.run_progress import RunProgress
from bot.model.run import State
from bot.web.templating import render_code, render_part

# Squares of a picture, side by side and below each other, in units of its own.
_IN_A_ROW, _STEP = 25, 12
_MAX_SQUARES = 500


class _ChildRun(Protocol):
    """What is known of one host: a run in full, or as far as watching it takes."""

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
    """How many hosts are alike. word: for people, after their number. kind: how it is drawn."""

    css_class: str
    label: str
    states: frozenset[State]


_S = State
OUTCOME_GROUPS = (
    OutcomeGroup("done", "done", frozenset({_S.SUCCEEDED, _S.NO_CHANGES})),
    OutcomeGroup(
        "failed",
        "failed",
        frozenset({_S.FAILED, _S.STALE, _S.REFUSED, _S.DENIED, _S.EXPIRED, _S.SUPERSEDED}),
    ),
    OutcomeGroup("unknown", "with an unknown end", frozenset({_S.UNKNOWN})),
    OutcomeGroup(
        "moving", "under way", frozenset({_S.PLANNING, _S.QUEUED, _S.STARTING, _S.RUNNING})
    ),
    OutcomeGroup("pending", "to come", frozenset({_S.PENDING, _S.COUNTER_PROPOSED})),
    OutcomeGroup("left", "left alone", frozenset({_S.WITHDRAWN, _S.STOPPED})),
)
_CSS_CLASS_OF_STATE = {
    state: share.css_class for share in OUTCOME_GROUPS for state in share.states
}


@dataclass(frozen=True)
class Square:
    x: int
    y: int
    css_class: str
    label: str


@dataclass(frozen=True)
class BarSegment:
    """A part of the bar, in hundredths of its width."""

    x: float
    width: float
    css_class: str


@dataclass(frozen=True)
class FanoutChart:
    """counted: of each share that there is, how many hosts. elapsed: microseconds, or None."""

    total: int
    group_counts: Sequence[tuple[OutcomeGroup, int]]
    squares: Sequence[Square]
    elapsed: int | None
    is_ended: bool

    @property
    def description(self) -> str:
        """Tell what the picture shows."""
        told = ", ".join(f"{count} {share.label}" for share, count in self.group_counts)
        return f"Of {self.total} hosts: {told}"

    @property
    def bar_segments(self) -> Sequence[BarSegment]:
        found: list[BarSegment] = []
        x = 0.0
        for share, count in self.group_counts:
            width = 100 * count / self.total
            found.append(BarSegment(round(x, 3), round(width, 3), share.css_class))
            x += width
        return found

    @property
    def height(self) -> int:
        return -(-len(self.squares) // _IN_A_ROW) * _STEP

    @property
    def width(self) -> int:
        return min(len(self.squares), _IN_A_ROW) * _STEP


def build_fanout_chart(
    child_runs: Sequence[_ChildRun], *, started: int | None, ended: int | None, now: int
) -> FanoutChart:
    counts = Counter(_CSS_CLASS_OF_STATE[part.state] for part in child_runs)
    counted = [
        (share, counts[share.css_class]) for share in OUTCOME_GROUPS if counts[share.css_class]
    ]
    elapsed = None if started is None else (ended or now) - started
    squares = [*_build_squares(child_runs)] if len(child_runs) <= _MAX_SQUARES else []
    return FanoutChart(len(child_runs), counted, squares, elapsed, ended is not None)


def _build_squares(child_runs: Sequence[_ChildRun]) -> Iterable[Square]:
    for n, part in enumerate(child_runs):
        y, x = divmod(n, _IN_A_ROW)
        says = f"{part.host}: {part.state}"
        yield Square(x * _STEP, y * _STEP, _CSS_CLASS_OF_STATE[part.state], says)


def render_fanout(progress: RunProgress) -> str:
    """Return the picture as a piece of a page."""
    whole = progress.whole
    seen = build_fanout_chart(
        progress.parts, started=whole.started_at, ended=whole.ended_at, now=progress.now
    )
    return render_part("run_fan.html", fan=seen)


def render_host_rows(
    child_runs: Iterable[_ChildRun], *, has_started: bool
) -> list[Mapping[str, object]]:
    """Return what the table of hosts says of each, as pieces of a page."""
    return [
        {
            "id": part.id,
            "badge": render_part("run_state.html", standing=part.status, begun=has_started),
            "summary": render_code(part.summary or "–"),
        }
        for part in child_runs
    ]
