"""A fan: how far a request for several hosts is, drawn and in words. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.db.run_progress import RunProgress
from bot.model.run import State
from bot.web.templating import piece, render_code

# Squares of a picture, side by side and below each other, in units of its own.
_IN_A_ROW, _STEP = 25, 12
_MOST_SQUARES = 500


class _Part(Protocol):
    """What is known of one host: a run in full, or as far as watching it takes."""

    @property
    def id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def standing(self) -> str: ...
    @property
    def summary(self) -> str: ...


@dataclass(frozen=True)
class Share:
    """How many hosts are alike. word: for people, after their number. kind: how it is drawn."""

    kind: str
    word: str
    states: frozenset[State]


_S = State
SHARES = (
    Share("done", "done", frozenset({_S.SUCCEEDED, _S.UNCHANGED})),
    Share(
        "failed",
        "failed",
        frozenset({_S.FAILED, _S.STALE, _S.REFUSED, _S.DENIED, _S.EXPIRED, _S.REPLACED}),
    ),
    Share("unknown", "with an unknown end", frozenset({_S.UNKNOWN})),
    Share("moving", "under way", frozenset({_S.ASKED, _S.READY, _S.STARTING, _S.RUNNING})),
    Share("waiting", "to come", frozenset({_S.WAITING, _S.OFFERED})),
    Share("left", "left alone", frozenset({_S.WITHDRAWN, _S.STOPPED})),
)
_KIND = {state: share.kind for share in SHARES for state in share.states}


@dataclass(frozen=True)
class Square:
    x: int
    y: int
    kind: str
    says: str


@dataclass(frozen=True)
class Stretch:
    """A part of the bar, in hundredths of its width."""

    x: float
    width: float
    kind: str


@dataclass(frozen=True)
class Fan:
    """counted: of each share that there is, how many hosts. elapsed: microseconds, or None."""

    total: int
    counted: Sequence[tuple[Share, int]]
    squares: Sequence[Square]
    elapsed: int | None
    over: bool

    @property
    def words(self) -> str:
        """Tell what the picture shows."""
        told = ", ".join(f"{count} {share.word}" for share, count in self.counted)
        return f"Of {self.total} hosts: {told}"

    @property
    def bar(self) -> Sequence[Stretch]:
        found: list[Stretch] = []
        x = 0.0
        for share, count in self.counted:
            width = 100 * count / self.total
            found.append(Stretch(round(x, 3), round(width, 3), share.kind))
            x += width
        return found

    @property
    def height(self) -> int:
        return -(-len(self.squares) // _IN_A_ROW) * _STEP

    @property
    def width(self) -> int:
        return min(len(self.squares), _IN_A_ROW) * _STEP


def fan(parts: Sequence[_Part], *, started: int | None, ended: int | None, now: int) -> Fan:
    counts = Counter(_KIND[part.state] for part in parts)
    counted = [(share, counts[share.kind]) for share in SHARES if counts[share.kind]]
    elapsed = None if started is None else (ended or now) - started
    squares = [*_squares(parts)] if len(parts) <= _MOST_SQUARES else []
    return Fan(len(parts), counted, squares, elapsed, ended is not None)


def _squares(parts: Sequence[_Part]) -> Iterable[Square]:
    for n, part in enumerate(parts):
        y, x = divmod(n, _IN_A_ROW)
        says = f"{part.host}: {part.state}"
        yield Square(x * _STEP, y * _STEP, _KIND[part.state], says)


def render_fanout(glance: RunProgress) -> str:
    """Return the picture as a piece of a page."""
    whole = glance.whole
    seen = fan(glance.parts, started=whole.started, ended=whole.ended, now=glance.now)
    return piece("run_fan.html", fan=seen)


def rows(parts: Iterable[_Part], *, begun: bool) -> list[Mapping[str, object]]:
    """Return what the table of hosts says of each, as pieces of a page."""
    return [
        {
            "id": part.id,
            "badge": piece("run_state.html", standing=part.standing, begun=begun),
            "summary": render_code(part.summary or "–"),
        }
        for part in parts
    ]
