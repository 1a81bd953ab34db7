"""The calendar: upcoming runs of schedules, and freezes, for each day."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile

from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Schedule, ScheduleState
from bot.model.run import Run
from bot.policy import Policy
from bot.policy.freezes import Freeze

DEFAULT_DAYS = 30
_SECOND = 1_000_000
_DAY = 86400 * _SECOND
# A schedule that runs every minute is cut off early, and earlier where there are many such
# schedules. A daily schedule is always shown to the end of the calendar.
_MOST_FIRES, _MOST_IN_ALL, _LEAST_FIRES = 1_500, 15_000, 100


@dataclass(frozen=True)
class UpcomingFires:
    """The due times of one schedule within one day."""

    schedule: int
    name: str
    request: str
    owner: str
    times: Sequence[int]
    """Microseconds since 1970."""
    skipped: int
    """How many of the times a freeze skips."""
    freeze: str
    """The name of that freeze."""


@dataclass(frozen=True)
class CalendarFreeze:
    """A freeze within one day. Times are microseconds since 1970."""

    name: str
    areas: Sequence[str]
    """Titles of the areas; empty for all areas."""
    begins_at: int
    ends_at: int
    whole_day: bool


@dataclass(frozen=True)
class CalendarDay:
    """One day in UTC."""

    date: date
    upcoming: Sequence[UpcomingFires] = ()
    freezes: Sequence[CalendarFreeze] = ()


@dataclass(frozen=True)
class Calendar:
    """Days in UTC; the first is today."""

    days: Sequence[CalendarDay]
    truncated_schedules: Sequence[str] = field(default=())
    """Names of schedules that run too often to be listed to the end of the calendar."""


def build_calendar(tx: Transaction, policy: Policy, *, days: int = DEFAULT_DAYS) -> Calendar:
    """Return the calendar of the given number of days from today."""
    today = tx.now // _DAY * _DAY
    horizon = today + days * _DAY
    fires: dict[int, list[UpcomingFires]] = {}
    truncated: list[str] = []
    left = _MOST_IN_ALL
    for schedule in schedules.list_schedules(tx):
        if schedule.state is not ScheduleState.ACTIVE:
            continue
        until = min(horizon, schedule.lapses_at)
        most = min(_MOST_FIRES, max(left, _LEAST_FIRES))
        times = _list_fire_times(schedule, tx.now, until, most)
        left -= len(times)
        if len(times) == most:
            truncated.append(schedule.timing.name)
        for day, coming in _group_by_day(policy, schedule, runs.get_run(tx, schedule.run), times):
            fires.setdefault(day, []).append(coming)
    starts = [today + n * _DAY for n in range(days)]
    return Calendar(
        [
            CalendarDay(
                datetime.fromtimestamp(start / _SECOND, UTC).date(),
                sorted(fires.get(start, ()), key=lambda one: one.times[0]),
                _list_freezes_of_day(policy, start),
            )
            for start in starts
        ],
        truncated,
    )


def _list_fire_times(schedule: Schedule, now: int, until: int, limit: int) -> list[int]:
    soon = takewhile(lambda at: at < until, schedule.timing.cron_expression.iterate_due_times(now))
    return [*islice(soon, limit)]


def _group_by_day(
    policy: Policy, schedule: Schedule, run: Run, times: Sequence[int]
) -> Iterator[tuple[int, UpcomingFires]]:
    days: dict[int, list[int]] = {}
    for due in times:
        days.setdefault(due // _DAY * _DAY, []).append(due)
    for day, dues in days.items():
        held = [freeze for due in dues if (freeze := _get_blocking_freeze(policy, run, due))]
        yield (
            day,
            UpcomingFires(
                schedule.id,
                schedule.timing.name,
                run.request,
                schedule.owner,
                dues,
                len(held),
                held[0] if held else "",
            ),
        )


def _get_blocking_freeze(policy: Policy, run: Run, due_at: int) -> str:
    """Return the freeze that would skip this due time; "" if there is none."""
    if run.kind != "change":
        return ""
    over = policy.freezes.find_longest_active(area=run.area, runbook=run.runbook, now=due_at)
    return over[0] if over else ""


def _list_freezes_of_day(policy: Policy, start: int) -> list[CalendarFreeze]:
    """Return the freezes that apply within a day, in order of time."""
    freezes: list[CalendarFreeze] = []
    for freeze in policy.freezes.freezes:
        titles = [policy.organisation.areas[area].title for area in freeze.areas]
        for begin, end in _iterate_freeze_periods(freeze, start):
            first, last = max(begin, start), min(end, start + _DAY)
            is_whole_day = last - first == _DAY
            freezes.append(CalendarFreeze(freeze.name, titles, first, last, is_whole_day))
    return sorted(freezes, key=lambda one: one.begins_at)


def _iterate_freeze_periods(freeze: Freeze, start: int) -> Iterator[tuple[int, int]]:
    time = datetime.fromtimestamp(start / _SECOND, UTC)
    end_of_day = time + timedelta(days=1)
    while time < end_of_day:
        period = freeze.get_current_or_next_period(time)
        if period is None or period[0] >= end_of_day:
            return
        yield _to_microseconds(period[0]), _to_microseconds(period[1])
        time = period[1]


def _to_microseconds(at: datetime) -> int:
    return round(at.timestamp()) * _SECOND
