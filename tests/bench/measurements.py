"""Medians and tails of measured times, and a table of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

# The milliseconds of `measure_speed` on the machine for which the targets were set.
USUAL_SPEED = 38


@dataclass(frozen=True)
class Figure:
    """One row. unit: of value and raw. raw: the same by a peer alone, None where there is no
    such thing. target: in words; met: whether it is, None where there is none. limit: what the
    value is compared with where it alone decides, None where there is no such thing; below: that
    it may not be more, and otherwise not less."""

    what: str
    value: float
    unit: str
    raw: float | None
    target: str
    met: bool | None
    limit: float | None = None
    below: bool = True

    @property
    def ratio(self) -> str:
        return "" if not self.raw else f"{self.value / self.raw:.2f}"

    @property
    def text(self) -> str:
        return f"{_number(self.value)} {self.unit}"

    @property
    def verdict(self) -> str:
        return {True: "yes", False: "**no**", None: "–"}[self.met]

    def on(self, speed: float) -> "Figure":
        """Return it as it would be on the machine for which the targets were set.

        speed: the milliseconds of `measure_speed` where it was measured. Times, rates and shares
        of a core are converted; ratios and memory stay. What waits for a disk is converted too,
        so a slow machine judges it too well.
        """
        slower = speed / USUAL_SPEED
        divisors = {"ms": slower, "s": slower, "%": slower, "/s": 1 / slower}
        value = self.value / divisors.get(self.unit, 1)
        if self.limit is None:
            return replace(self, value=value)
        judge = set_maximum if self.below else set_minimum
        return judge(self.limit, self.what, value, self.unit, self.raw)

    def of(self, whose: str) -> "Figure":
        """Return it with the name of what it was measured on."""
        return replace(self, what=f"{self.what} ({whose})")


@dataclass(frozen=True)
class Part:
    """What a part of it came to. text: Markdown. targets: those of its figures that the page
    begins with."""

    text: str
    targets: list[Figure]


def set_maximum(
    limit: float, what: str, value: float, unit: str, raw: float | None = None
) -> Figure:
    target = f"≤ {_number(limit)} {unit}"
    return Figure(what, value, unit, raw, target, value <= limit, limit)


def set_minimum(
    limit: float, what: str, value: float, unit: str, raw: float | None = None
) -> Figure:
    target = f"≥ {_number(limit)} {unit}"
    return Figure(what, value, unit, raw, target, value >= limit, limit, below=False)


def _number(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def resident(kind: str = "VmRSS", process: int | str = "self") -> float:
    """Return the MiB of memory that a process holds. kind: or VmHWM, the most it ever held."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(kind)


def timed(work: Callable[[], object], rounds: int) -> list[float]:
    """Return how many seconds each round took."""
    took: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return took


def measure_speed() -> float:
    """Return the milliseconds that a fixed piece of Python takes, so that machines compare."""
    return median(timed(lambda: sum(number * number for number in range(1_000_000)), 5)) * 1000


def p95(took: Sequence[float]) -> float:
    return sorted(took)[int(0.95 * (len(took) - 1))]


def rates(ours: Callable[[], int], theirs: Callable[[], int], rounds: int) -> tuple[float, float]:
    """Return how many things a second each does: medians of rounds that take turns."""
    rates_of_both: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, rate in zip((ours, theirs), rates_of_both, strict=True):
            began = time.perf_counter()
            done = work()
            rate.append(done / (time.perf_counter() - began))
    return median(rates_of_both[0]), median(rates_of_both[1])


def table(figures: Sequence[Figure], *, beside: str = "peer") -> str:
    """Return a table in Markdown. beside: what the peer is, where figures have one."""
    head = ["what", "measured", beside, "ratio", "target", "met"]
    rows = [head]
    for one in figures:
        peer = "–" if one.raw is None else _number(one.raw)
        rows.append([one.what, one.text, peer, one.ratio or "–", one.target, one.verdict])
    if all(one.raw is None for one in figures):
        rows = [[*row[:2], *row[4:]] for row in rows]
    return columns(rows)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown. rows: the first is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *rest = rows
    lines = [head, ["-" * width for width in widths], *rest]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)
