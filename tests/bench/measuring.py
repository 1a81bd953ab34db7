"""Figures: medians and tails of what was timed, and a table of them beside what they stand for."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One row. unit: of value and raw. raw: the same by the driver alone, None where there is no
    such thing. target: in words; met: whether it is."""

    what: str
    value: float
    unit: str
    raw: float | None
    target: str
    met: bool

    @property
    def ratio(self) -> str:
        return "" if not self.raw else f"{self.value / self.raw:.2f}"


def timed(work: Callable[[], object], rounds: int) -> list[float]:
    """Return how many seconds each round took."""
    took: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return took


def p95(took: Sequence[float]) -> float:
    return sorted(took)[int(0.95 * (len(took) - 1))]


def rates(ours: Callable[[], int], theirs: Callable[[], int], rounds: int) -> tuple[float, float]:
    """Return how many things a second each does: medians of rounds that take turns."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, rate in zip((ours, theirs), found, strict=True):
            began = time.perf_counter()
            done = work()
            rate.append(done / (time.perf_counter() - began))
    return median(found[0]), median(found[1])


def table(figures: Sequence[Figure]) -> str:
    """Return a table in Markdown."""
    head = ["what", "measured", "raw driver", "ratio", "target", "met"]
    rows = [
        [
            one.what,
            f"{one.value:,.4g} {one.unit}" if one.value < 1000 else f"{one.value:,.0f} {one.unit}",
            "–" if one.raw is None else f"{one.raw:,.4g}" if one.raw < 1000 else f"{one.raw:,.0f}",
            one.ratio or "–",
            one.target,
            "yes" if one.met else "**no**",
        ]
        for one in figures
    ]
    return columns([head, *rows])


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown. rows: the first is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *rest = rows
    lines = [head, ["-" * width for width in widths], *rest]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)
