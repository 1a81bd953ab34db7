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
from bot.model.times import SECOND
from bot.policy import Policy, PolicySource
from bot.policy.oncall import CalendarReading, Duty, DutyCalendar, compute_duty

# How old the readings may be in web, Slack and API; the gate reads the table.
_CACHE_SECONDS = 2.0


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
    """Check that each calendar has a current reading."""
    for one in list_calendars(tx, policy):
        name = one.calendar.name
        if one.duty.is_known:
            yield create_ok_result(subject, f"calendar {name} has a current reading")
            continue
        areas = ", ".join(one.calendar.areas) or "every area"
        yield create_warning_result(
            subject,
            f"calendar {name} has no current reading, so in {areas} no one is on duty by it and "
            f"context.oncall is 0: {one.error or 'it was not read yet'}",
        )


def _describe_calendar(
    policy: Policy, calendar: DutyCalendar, reading: CalendarReading | None, now: int
) -> CalendarStatus:
    duty = compute_duty(calendar, reading, policy.organisation, now)
    later = [one for one in (reading.shifts if reading else ()) if one.starts_at > now]
    return CalendarStatus(
        calendar,
        duty,
        reading if reading and reading.fetched_at else None,
        [policy.get_person_name(person) for person in duty.people],
        later[0] if later and duty.is_known else None,
        reading.error if reading else "",
    )
