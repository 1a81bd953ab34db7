"""What people see of schedules: calendar, list, check of health, digest, and what lapses soon."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from functools import partial
from itertools import groupby, pairwise

from bot.audit import change_log, events
from bot.audit.change_log import EntryDraft
from bot.db import runs
from bot.db.database import Transaction
from bot.features.schedules import rows
from bot.features.schedules.rows import Schedule
from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    create_warning_result,
)
from bot.model.run import Run
from bot.model.schedule import ScheduleState
from bot.model.times import DAY, SECOND, format_deadline, list_days, to_datetime, to_microseconds
from bot.policy import Policy
from bot.policy.freezes import Freeze
from bot.queries.digest import DigestSection, is_near_end

DEFAULT_DAYS = 30
_DIGEST_DAYS, _NOTICE_DAYS = 28, 14
# A due time that was not handled for so long is overdue.
_LATE_SECONDS = 120
# So many due times of a schedule are listed for a day; all of them are counted.
MAX_LISTED_TIMES = 24


@dataclass(frozen=True)
class UpcomingFires:
    """The due times of one schedule within one day."""

    schedule: int
    name: str
    request: str
    owner: str
    times: Sequence[int]
    """The first due times, at most 24, in microseconds since 1970."""
    count: int
    """The number of all due times of the day."""
    interval: int
    """Microseconds between any two due times in a row; 0 if that differs or there is only one."""
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
    hosts: Sequence[str]
    """Names, patterns and tags; empty for all hosts of the areas."""
    begins_at: int
    ends_at: int
    whole_day: bool


@dataclass(frozen=True)
class CalendarDay:
    """One day in the time zone of the calendar."""

    date: date
    upcoming: Sequence[UpcomingFires] = ()
    freezes: Sequence[CalendarFreeze] = ()


def build_calendar(
    tx: Transaction,
    policy: Policy,
    *,
    days: int = DEFAULT_DAYS,
    zone: str = "UTC",
    schedules: Sequence[Schedule] | None = None,
) -> list[CalendarDay]:
    """Return the given number of days in a time zone; the first is today.

    schedules: active ones to show; all if omitted.
    """
    if schedules is None:
        schedules = rows.list_schedules(tx, states=[ScheduleState.ACTIVE])
    listed = list_days(tx.now, zone, range(days))
    ends = [end for _, (_, end) in listed]
    upcoming: list[list[UpcomingFires]] = [[] for _ in listed]
    for schedule in schedules:
        run = runs.get_run(tx, schedule.run)
        dues = schedule.timing.cron_expression.list_due_times_between(
            tx.now, min(ends[-1], schedule.lapses_at)
        )
        for n, dues_of_day in groupby(dues, partial(bisect_right, ends)):
            upcoming[n].append(_build_fires(policy, schedule, run, list(dues_of_day)))
    return [
        CalendarDay(
            day,
            sorted(upcoming[n], key=lambda one: one.times[0]),
            _list_freezes_of_day(policy, begin, end),
        )
        for n, (day, (begin, end)) in enumerate(listed)
    ]


def _build_fires(
    policy: Policy, schedule: Schedule, run: Run, dues: Sequence[int]
) -> UpcomingFires:
    gaps = {later - sooner for sooner, later in pairwise(dues)}
    known = policy.inventory.hosts
    hosts = [known[host] for host in run.target_hosts if host in known]
    held = {
        due: freeze.name
        for freeze in policy.freezes.freezes
        if run.kind == "change" and freeze.holds_any(hosts, run.runbook)
        for begin, end in _iterate_freeze_periods(freeze, dues[0], dues[-1] + 1)
        for due in dues
        if begin <= due < end
    }
    return UpcomingFires(
        schedule.id,
        schedule.timing.name,
        run.request,
        schedule.owner,
        dues[:MAX_LISTED_TIMES],
        len(dues),
        gaps.pop() if len(gaps) == 1 else 0,
        len(held),
        next(iter(held.values()), ""),
    )


def _list_freezes_of_day(policy: Policy, start: int, end: int) -> list[CalendarFreeze]:
    """Return the freezes that apply within a day, in order of time."""
    freezes: list[CalendarFreeze] = []
    for freeze in policy.freezes.freezes:
        titles = [policy.organisation.areas[area].title for area in freeze.areas]
        for begins_at, ends_at in _iterate_freeze_periods(freeze, start, end):
            first, last = max(begins_at, start), min(ends_at, end)
            is_whole_day = (first, last) == (start, end)
            freezes.append(
                CalendarFreeze(freeze.name, titles, freeze.hosts, first, last, is_whole_day)
            )
    return sorted(freezes, key=lambda one: one.begins_at)


def _iterate_freeze_periods(freeze: Freeze, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the periods of a freeze that overlap with the time from *start* to *end*."""
    at, until = to_datetime(start).astimezone(UTC), to_datetime(end)
    while period := freeze.get_current_or_next_period(at):
        if period[0] >= until:
            return
        yield to_microseconds(period[0]), to_microseconds(period[1])
        at = period[1]


def list_recent_schedules(
    tx: Transaction, *, most: int | None = None, skip: int = 0
) -> tuple[list[Schedule], int]:
    """Return the schedules without those that ended long ago, and how many are left out.

    most, skip: as list_schedules() takes them.
    """
    since = tx.now - rows.ENDED_DAYS * DAY
    ends = change_log.list_entries_since(tx, events.ScheduleEnded.kind, since)
    recent = {entry.run for entry in ends if entry.run is not None}
    shown = rows.list_shown_schedules(tx, recent, most=most, skip=skip)
    left_out = rows.count_schedules(tx, ScheduleState.ENDED, except_runs=recent)
    return shown, left_out


def check_schedules(tx: Transaction, _policy: Policy) -> Iterator[CheckResult]:
    """Check that no schedule is overdue, and that none was missed."""
    missed = sum(rows.count_missed(tx, days=7).values())
    active = rows.count_schedules(tx, ScheduleState.ACTIVE)
    late = rows.count_schedules(
        tx, ScheduleState.ACTIVE, due_before=tx.now - _LATE_SECONDS * SECOND
    )
    if late:
        # By due time, the active ones first.
        names = ", ".join(one.timing.name for one in rows.list_schedules(tx, most=min(late, 5)))
        yield create_error_result(
            "Schedules",
            f"{late} are overdue, such as {names}: check that keyturn serve is running",
        )
    elif missed:
        yield create_warning_result("Schedules", f"{missed} missed in the last 7 days")
    else:
        yield create_ok_result("Schedules", f"{active} active, none overdue")


def build_digest(tx: Transaction, _policy: Policy, areas: set[str]) -> Sequence[DigestSection]:
    """Return the schedules in these areas whose approval ends soon."""
    return [
        DigestSection(
            f"Schedules that lapse within {_DIGEST_DAYS} days",
            [
                f"schedule {one.id}: {run.title}, until {format_deadline(one.lapses_at)}"
                for one, run in _list_lapsing(tx, _DIGEST_DAYS)
                if areas & {*run.areas}
            ],
        )
    ]


def list_ends(tx: Transaction) -> Iterator[EntryDraft]:
    """Yield an entry about each approval that ends soon and has none yet."""
    for one, run in _list_lapsing(tx, _NOTICE_DAYS):
        if is_near_end(
            tx.now, one.created_at, one.lapses_at, days=_NOTICE_DAYS
        ) and not change_log.list_entries_of_run(tx, run.id, [events.ScheduleLapsesSoon.kind]):
            lapses = events.ScheduleLapsesSoon(
                schedule=one.id, owner=one.owner, lapses_at=one.lapses_at
            )
            yield EntryDraft(lapses, run=run.id)


def _list_lapsing(tx: Transaction, days: int) -> Iterator[tuple[Schedule, Run]]:
    """Yield the active schedules whose approval ends within some days, with their requests.

    One that needs no approval cannot lapse.
    """
    for one in rows.list_lapsing(tx, tx.now + days * DAY):
        run = runs.get_run(tx, one.run)
        if run.required_approvals:
            yield one, run
