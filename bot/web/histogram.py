"""Histogram of runs or log entries over time; each bar is also a filter. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from bot.model.text import format_count
from bot.model.times import format_span, to_datetime

# The most records that are counted.
MAX_COUNTED = 1_000
_MAX_BARS = 60
_MAX_HEIGHT = 46
_MINUTE = 60_000_000
# The periods of a bar, in minutes: up to a day they divide it.
_STEPS = (1, 5, 15, 30, 60, 180, 360, 720, *(1440 * days for days in (1, 7, 30, 90, 365)))


@dataclass(frozen=True)
class Bar:
    """The records of one period. x, width: percent of the chart. height: pixels."""

    x: float
    width: float
    height: int
    url: str
    """The page with only the records of the period."""
    title: str


@dataclass(frozen=True)
class Histogram:
    """Bars from *since* to *until*, in microseconds since 1970."""

    bars: Sequence[Bar]
    since: int
    until: int
    description: str


def build_histogram(
    times: Sequence[int],
    *,
    until: int,
    zone: str,
    noun: str,
    build_url: Callable[[str, str], str],
) -> Histogram:
    """Return the histogram of at most MAX_COUNTED times, in microseconds.

    Args:
        times: The times of the newest records.
        until: The end of the period if no record is later.
        zone: The reader's time zone, which the bars begin in.
        noun: One record, with a regular plural: `run`.
        build_url: Returns the page of a period from its first and last minute, in that zone.
    """
    if not times:
        return Histogram([], until, until, "")
    begin, end = min(times), max(until, *times)
    step = _choose_step(end - begin)
    offset = to_datetime(begin).astimezone(ZoneInfo(zone)).utcoffset()
    shift = int(offset.total_seconds()) * 1_000_000 if offset else 0
    first = (begin + shift) // step * step - shift
    counts = Counter((at - first) // step for at in times)
    number = (end - first) // step + 1
    highest = max(counts.values())

    def format_minute(at: int) -> str:
        return f"{to_datetime(at).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"

    bars = [
        Bar(
            x=round(100 * n / number, 3),
            width=round(min(85 / number, 20), 3),
            height=max(round(_MAX_HEIGHT * counts[n] / highest), 2) if counts[n] else 0,
            url=build_url(format_minute(at), format_minute(at + step - _MINUTE)),
            title=f"{format_count(counts[n], noun)} from {format_minute(at)}",
        )
        for n in range(number)
        for at in [first + n * step]
    ]
    total = format_count(len(times), noun)
    partly = "newest " if len(times) >= MAX_COUNTED else ""
    return Histogram(bars, first, end, f"{partly}{total}, {format_span(step)} a bar")


def _choose_step(span: int) -> int:
    return next(
        (one * _MINUTE for one in _STEPS if span // (one * _MINUTE) < _MAX_BARS),
        _STEPS[-1] * _MINUTE,
    )
