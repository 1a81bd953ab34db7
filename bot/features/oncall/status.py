"""The calendars with who is on duty, for people to read, and whether they can be relied on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.db.database import Transaction
from bot.features.oncall import rows
from bot.features.oncall.duties import compute_duty
from bot.features.oncall.rows import CalendarReading
from bot.features.oncall.shift import Shift
from bot.model.check_result import CheckResult, create_ok_result, create_warning_result
from bot.model.text import format_count
from bot.policy import Policy
from bot.policy.oncall import Duty, DutyCalendar

_MAX_UNCLEAR = 5
_SUBJECT = "On call"


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
    readings = rows.list_readings(tx)
    return [
        _describe_calendar(policy, calendar, readings.get(name), tx.now)
        for name, calendar in policy.calendars.items()
    ]


def check_calendars(tx: Transaction, policy: Policy) -> Iterator[CheckResult]:
    """Check that each calendar has a current reading, and that its events are understood."""
    for one in list_calendars(tx, policy):
        name = one.calendar.name
        areas = ", ".join(one.calendar.areas) or "every area"
        if not one.duty.is_known:
            yield create_warning_result(
                _SUBJECT,
                f"calendar {name} has no current reading, so in {areas} no one is on duty by it "
                f"and context.oncall is 0: {one.error or 'it was not read yet'}",
            )
        elif one.unclear_shifts:
            yield create_warning_result(_SUBJECT, _describe_unclear_shifts(one, areas))
        else:
            yield create_ok_result(_SUBJECT, f"calendar {name} has a current reading")


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
    duty = compute_duty(calendar, reading, policy, now)
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
