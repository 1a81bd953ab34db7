"""Who is on duty: the policy with the roles that the calendars give."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bot.auth import oncall
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.model.check_result import CheckResult, create_ok_result, create_warning_result
from bot.model.run import Run, State
from bot.model.shift import Shift
from bot.model.text import format_count
from bot.model.times import SECOND
from bot.policy import Policy, PolicySource
from bot.policy.oncall import CalendarReading, Duty, DutyCalendar, compute_duty

# How old the readings may be in web, Slack and API; the gate reads the table.
_CACHE_SECONDS = 2.0
_MAX_UNCLEAR = 5


class PolicyWithDuties:
    """Provides the policy with the roles of the people on duty. Thread-safe.

    clock: returns seconds that only pass.
    """

    def __init__(
        self,
        policies: PolicySource,
        database: Database,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policies, self._database, self._clock = policies, database, clock
        self._lock = threading.Lock()
        self._readings: Mapping[str, CalendarReading] = {}
        self._now, self._read_at = 0, float("-inf")
        self._cached: tuple[Policy, Policy] | None = None

    def get_policy(self) -> Policy:
        """Return the policy. Raises NoPolicyError."""
        policy = self._policies.get_policy()
        if not policy.calendars:
            return policy
        self._read()
        with self._lock:
            # Before the first reading there are no shifts, whatever the time.
            elapsed = self._clock() - self._read_at if self._now else 0
            now = self._now + round(elapsed * SECOND)
            known = self._cached[1] if self._cached and self._cached[0] is policy else policy
            self._cached = (policy, _apply_duties(known, self._readings, now))
            return self._cached[1]

    def _read(self) -> None:
        with self._lock:
            if self._clock() - self._read_at < _CACHE_SECONDS:
                return
        began = self._clock()
        try:
            with self._database.reading() as tx:
                readings, now = oncall.list_readings(tx), tx.now
        except StoreUnavailable:
            # What is known ages, and the gate lets nothing through without a database.
            return
        with self._lock:
            self._readings, self._now, self._read_at = readings, now, began


def apply_duties(tx: Transaction, policy: Policy, run: Run | None = None) -> Policy:
    """Return the policy with the roles of the people on duty now, as the gate judges a run.

    A running run is judged by those of its start, so that the end of a shift interrupts nothing.
    """
    if not policy.calendars:
        return policy
    at = run.started_at if run and run.state is State.RUNNING else None
    return _apply_duties(policy, oncall.list_readings(tx), at or tx.now)


def _apply_duties(policy: Policy, readings: Mapping[str, CalendarReading], now: int) -> Policy:
    duties = {
        name: compute_duty(calendar, readings.get(name), policy.organisation, now)
        for name, calendar in policy.calendars.items()
    }
    return policy if duties == policy.duties else policy.with_duties(duties)


@dataclass(frozen=True)
class CalendarStatus:
    """A calendar with who is on duty, for people to read."""

    calendar: DutyCalendar
    duty: Duty
    reading: CalendarReading | None
    """None if it was not read yet."""
    people: Sequence[str]
    """The names of who is on duty."""
    next_shift: Shift | None
    """The next one that starts later."""
    unclear_shifts: Sequence[Shift] = ()
    """Those that are not understood and have not ended."""
    error: str = ""
    """Why it cannot be read now."""


def list_calendars(tx: Transaction, policy: Policy) -> Sequence[CalendarStatus]:
    """Return all calendars of the policy, with who is on duty now."""
    if not policy.calendars:
        return ()
    readings = oncall.list_readings(tx)
    return [
        _describe_calendar(policy, calendar, readings.get(name), tx.now)
        for name, calendar in policy.calendars.items()
    ]


def check_calendars(
    tx: Transaction, policy: Policy, *, subject: str = "On call"
) -> Iterator[CheckResult]:
    """Check that each calendar has a current reading, and that its events are understood."""
    for one in list_calendars(tx, policy):
        name = one.calendar.name
        areas = ", ".join(one.calendar.areas) or "every area"
        if not one.duty.is_known:
            yield create_warning_result(
                subject,
                f"calendar {name} has no current reading, so in {areas} no one is on duty by it "
                f"and context.oncall is 0: {one.error or 'it was not read yet'}",
            )
        elif one.unclear_shifts:
            yield create_warning_result(subject, _describe_unclear_shifts(one, areas))
        else:
            yield create_ok_result(subject, f"calendar {name} has a current reading")


def _describe_unclear_shifts(status: CalendarStatus, areas: str) -> str:
    reasons = {one.title: one.problem for one in status.unclear_shifts}
    named = [f"“{title}”: {problem}" for title, problem in [*reasons.items()][:_MAX_UNCLEAR]]
    more = f"; and {len(reasons) - len(named)} more" if len(reasons) > len(named) else ""
    return (
        f"calendar {status.calendar.name} has {format_count(len(reasons), 'event')} that Keyturn "
        f"does not understand. Such an event puts no one on duty, and in {areas} context.oncall "
        f"is 0 at its time. Correct in the calendar: {'; '.join(named)}{more}"
    )


def _describe_calendar(
    policy: Policy, calendar: DutyCalendar, reading: CalendarReading | None, now: int
) -> CalendarStatus:
    duty = compute_duty(calendar, reading, policy.organisation, now)
    shifts = reading.shifts if reading and duty.is_known else ()
    later = [one for one in shifts if one.starts_at > now and not one.problem]
    return CalendarStatus(
        calendar,
        duty,
        reading if reading and reading.fetched_at else None,
        [policy.get_person_name(person) for person in duty.people],
        later[0] if later else None,
        [one for one in shifts if one.problem and one.ends_at > now],
        reading.error if reading else "",
    )
