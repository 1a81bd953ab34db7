"""Histogram of runs or log entries over time; each bar is also a filter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from fastapi import Request

from bot.db.database import Transaction
from bot.db.time_counts import CountedTimes, count_by_step, get_period
from bot.model.text import format_count
from bot.model.times import format_span, to_datetime
from bot.web.templating import get_reader_zone

_MAX_BARS = 60
_MAX_HEIGHT = 46
_MINUTE = 60_000_000
# The periods of a bar: up to a day they divide it.
_DAYS_IN_MINUTES = (1440 * days for days in (1, 7, 30, 90, 365))
_STEPS = [n * _MINUTE for n in (1, 5, 15, 30, 60, 180, 360, 720, *_DAYS_IN_MINUTES)]


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


def is_histogram_wanted(request: Request) -> bool:
    """Return whether the page is requested with its histogram: scripts request it separately."""
    return bool(request.query_params.get("chart"))


def build_histogram(
    request: Request,
    tx: Transaction,
    times: CountedTimes | None,
    *,
    until: int | None,
    noun: str,
    typed: Mapping[str, str],
) -> Histogram:
    """Return the histogram of the counted times, in the time zone of the reader.

    Args:
        request: Its page is the one that bars link to.
        tx: A transaction.
        times: None for no records.
        until: The end of the filter, if it has one.
        noun: One record, with a regular plural: `run`.
        typed: The filters of the page.
    """
    until = min(until or tx.now, tx.now)
    period = get_period(tx, times) if times else None
    if times is None or period is None:
        return Histogram([], until, until, "")
    begin, end, total = period[0], max(until, period[1]), period[2]
    zone = get_reader_zone(request)
    step = next((one for one in _STEPS if (end - begin) // one < _MAX_BARS), _STEPS[-1])
    offset = to_datetime(begin).astimezone(ZoneInfo(zone)).utcoffset()
    shift = int(offset.total_seconds()) * 1_000_000 if offset else 0
    first = (begin + shift) // step * step - shift
    counts = count_by_step(tx, times, first=first, step=step)
    number = (end - first) // step + 1
    highest = max(counts.values())
    # Without scripts, the page of a period has its histogram too.
    shown = {**typed, "zone": zone} | ({} if "hx-request" in request.headers else {"chart": "yes"})

    def format_minute(at: int) -> str:
        return f"{to_datetime(at).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"

    def build_bar(n: int) -> Bar:
        since, last = (format_minute(first + n * step + more) for more in (0, step - _MINUTE))
        count = counts.get(n, 0)
        return Bar(
            x=round(100 * n / number, 3),
            width=round(min(85 / number, 20), 3),
            height=max(round(_MAX_HEIGHT * count / highest), 2) if count else 0,
            url=f"{request.url.path}?{urlencode({**shown, 'since': since, 'until': last})}",
            title=f"{format_count(count, noun)} from {since}",
        )

    partly = "" if times.is_complete else "; older ones are not counted"
    description = f"{format_count(total, noun)}, {format_span(step)} per bar{partly}"
    return Histogram([build_bar(n) for n in range(number)], first, end, description)
