"""The diary: what fires in the coming days, and which freezes hold then."""

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
# What fires every minute is not looked at to its end, and less far where much fires so often; what
# fires once a day is, whatever else does.
_MOST_FIRES, _MOST_IN_ALL, _LEAST_FIRES = 1_500, 15_000, 100


@dataclass(frozen=True)
class UpcomingFires:
    """The moments of one schedule within one day. moments: microseconds. left_out: how many of
    them a freeze holds up; freeze: its name.
    """

    schedule: int
    name: str
    request: str
    owner: str
    times: Sequence[int]
    skipped: int
    freeze: str


@dataclass(frozen=True)
class CalendarFreeze:
    """A freeze within one day, from and until microseconds; areas: titles, none for all."""

    name: str
    areas: Sequence[str]
    begins_at: int
    ends_at: int
    whole_day: bool


@dataclass(frozen=True)
class CalendarDay:
    date: date
    upcoming: Sequence[UpcomingFires] = ()
    freezes: Sequence[CalendarFreeze] = ()


@dataclass(frozen=True)
class Calendar:
    """Days in UTC, the first is today. cut: schedules that fire too often to be followed to the
    end of it.
    """

    days: Sequence[CalendarDay]
    truncated_schedules: Sequence[str] = field(default=())


def build_calendar(tx: Transaction, policy: Policy, *, days: int = DEFAULT_DAYS) -> Calendar:
    """Look ahead from now on."""
    today = tx.now // _DAY * _DAY
    horizon = today + days * _DAY
    fires: dict[int, list[UpcomingFires]] = {}
    cut: list[str] = []
    left = _MOST_IN_ALL
    for schedule in schedules.list_schedules(tx):
        if schedule.state is not ScheduleState.ACTIVE:
            continue
        until = min(horizon, schedule.lapses_at)
        most = min(_MOST_FIRES, max(left, _LEAST_FIRES))
        moments = _list_fire_times(schedule, tx.now, until, most)
        left -= len(moments)
        if len(moments) == most:
            cut.append(schedule.timing.name)
        for day, coming in _group_by_day(
            policy, schedule, runs.get_run(tx, schedule.run), moments
        ):
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
        cut,
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
    """Return the freeze by which this moment would be left out; "" if there is none."""
    if run.kind != "change":
        return ""
    over = policy.freezes.find_longest_active(area=run.area, runbook=run.runbook, now=due_at)
    return over[0] if over else ""


def _list_freezes_of_day(policy: Policy, start: int) -> list[CalendarFreeze]:
    """Return the freezes that hold within a day, the first first."""
    found: list[CalendarFreeze] = []
    for freeze in policy.freezes.freezes:
        titles = [policy.organisation.areas[area].title for area in freeze.areas]
        for begin, end in _iterate_freeze_periods(freeze, start):
            first, last = max(begin, start), min(end, start + _DAY)
            whole = last - first == _DAY
            found.append(CalendarFreeze(freeze.name, titles, first, last, whole))
    return sorted(found, key=lambda one: one.begins_at)


def _iterate_freeze_periods(freeze: Freeze, start: int) -> Iterator[tuple[int, int]]:
    moment = datetime.fromtimestamp(start / _SECOND, UTC)
    beyond = moment + timedelta(days=1)
    while moment < beyond:
        stretch = freeze.get_current_or_next_period(moment)
        if stretch is None or stretch[0] >= beyond:
            return
        yield _to_microseconds(stretch[0]), _to_microseconds(stretch[1])
        moment = stretch[1]


def _to_microseconds(at: datetime) -> int:
    return round(at.timestamp()) * _SECOND
