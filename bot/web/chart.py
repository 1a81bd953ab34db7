"""Charts: where things lie in a drawing, in hundredths of its width. Pure; templates draw them."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot import moment
from bot.run import Run, State
from bot.web import badge

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
    words = (
        f"{len(runs)} {'change' if len(runs) == 1 else 'changes'} in {moment.span(until - since)}"
    )
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
    shown = badge.RUN[run.standing]
    return Mark(
        x=x,
        width=max(place(end, since, until) - x, 0),
        lane=_lane(run.state),
        tone=shown.tone,
        title=f"{shown.word}: {run.title}, {moment.utc(begin)}",
    )


def _lane(state: State) -> int:
    if state in _DONE:
        return 0
    if state in _WRONG:
        return 1
    return 2 if badge.RUN[state].tone in {"grey", "red"} else 3


def place(at: int, since: int, until: int) -> float:
    """Return where a moment lies between two others, in hundredths, kept between them."""
    return round(min(max((at - since) / max(until - since, 1), 0), 1) * 100, 3)
