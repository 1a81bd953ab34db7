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

DAYS = 30
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
    moments: Sequence[int]
    left_out: int
    freeze: str


@dataclass(frozen=True)
class CalendarFreeze:
    """A freeze within one day, from and until microseconds; areas: titles, none for all."""

    name: str
    areas: Sequence[str]
    begin: int
    end: int
    whole_day: bool


@dataclass(frozen=True)
class Day:
    date: date
    coming: Sequence[UpcomingFires] = ()
    frosts: Sequence[CalendarFreeze] = ()


@dataclass(frozen=True)
class Calendar:
    """Days in UTC, the first is today. cut: schedules that fire too often to be followed to the
    end of it.
    """

    days: Sequence[Day]
    cut: Sequence[str] = field(default=())


def build_calendar(tx: Transaction, policy: Policy, *, days: int = DAYS) -> Calendar:
    """Look ahead from now on."""
    today = tx.now // _DAY * _DAY
    horizon = today + days * _DAY
    fires: dict[int, list[UpcomingFires]] = {}
    cut: list[str] = []
    left = _MOST_IN_ALL
    for schedule in schedules.list_schedules(tx):
        if schedule.standing is not ScheduleState.ACTIVE:
            continue
        until = min(horizon, schedule.lapses)
        most = min(_MOST_FIRES, max(left, _LEAST_FIRES))
        moments = _moments(schedule, tx.now, until, most)
        left -= len(moments)
        if len(moments) == most:
            cut.append(schedule.timing.name)
        for day, coming in _by_day(policy, schedule, runs.get_run(tx, schedule.run), moments):
            fires.setdefault(day, []).append(coming)
    starts = [today + n * _DAY for n in range(days)]
    return Calendar(
        [
            Day(
                datetime.fromtimestamp(start / _SECOND, UTC).date(),
                sorted(fires.get(start, ()), key=lambda one: one.moments[0]),
                _frosts(policy, start),
            )
            for start in starts
        ],
        cut,
    )


def _moments(schedule: Schedule, now: int, until: int, most: int) -> list[int]:
    soon = takewhile(lambda at: at < until, schedule.timing.timetable.after(now))
    return [*islice(soon, most)]


def _by_day(
    policy: Policy, schedule: Schedule, run: Run, moments: Sequence[int]
) -> Iterator[tuple[int, UpcomingFires]]:
    days: dict[int, list[int]] = {}
    for due in moments:
        days.setdefault(due // _DAY * _DAY, []).append(due)
    for day, dues in days.items():
        held = [freeze for due in dues if (freeze := _held_up(policy, run, due))]
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


def _held_up(policy: Policy, run: Run, due: int) -> str:
    """Return the freeze by which this moment would be left out; "" if there is none."""
    if run.kind != "change":
        return ""
    over = policy.freezes.over(area=run.area, runbook=run.words, now=due)
    return over[0] if over else ""


def _frosts(policy: Policy, start: int) -> list[CalendarFreeze]:
    """Return the freezes that hold within a day, the first first."""
    found: list[CalendarFreeze] = []
    for freeze in policy.freezes.freezes:
        titles = [policy.household.areas[area].title for area in freeze.areas]
        for begin, end in _stretches(freeze, start):
            first, last = max(begin, start), min(end, start + _DAY)
            whole = last - first == _DAY
            found.append(CalendarFreeze(freeze.name, titles, first, last, whole))
    return sorted(found, key=lambda one: one.begin)


def _stretches(freeze: Freeze, start: int) -> Iterator[tuple[int, int]]:
    moment = datetime.fromtimestamp(start / _SECOND, UTC)
    beyond = moment + timedelta(days=1)
    while moment < beyond:
        stretch = freeze.stretch(moment)
        if stretch is None or stretch[0] >= beyond:
            return
        yield _micros(stretch[0]), _micros(stretch[1])
        moment = stretch[1]


def _micros(at: datetime) -> int:
    return round(at.timestamp()) * _SECOND
