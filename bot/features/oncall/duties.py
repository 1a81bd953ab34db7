"""Who is on duty by the shifts of calendars, as a fact of the policy."""

from collections.abc import Sequence

from bot.db.database import Transaction
from bot.features.oncall import rows
from bot.features.oncall.rows import CalendarReading
from bot.features.oncall.shift import Shift
from bot.model.run import Run, State
from bot.policy import Policy
from bot.policy.oncall import Duty, DutyCalendar
from bot.queries.policy_facts import PolicyFacts


def apply_duties(tx: Transaction, policy: Policy, run: Run | None = None) -> Policy:
    """Return the policy with the roles of the people on duty now, as the gate judges a run.

    A running run is judged by those of its start, so that the end of a shift interrupts nothing.
    """
    at = run.started_at if run and run.state is State.RUNNING else None
    readings = rows.list_readings(tx)
    duties = {
        name: compute_duty(calendar, readings.get(name), policy, at or tx.now)
        for name, calendar in policy.calendars.items()
    }
    return policy if duties == policy.duties else policy.with_duties(duties)


FACTS = PolicyFacts(matter_to=lambda policy: bool(policy.calendars), apply=apply_duties)


def compute_duty(
    calendar: DutyCalendar,
    reading: CalendarReading | None,
    policy: Policy,
    now: int,
) -> Duty:
    """Return who is on duty now; no one by a reading that is too old."""
    if reading is None:
        return Duty()
    if not reading.is_current(calendar, now):
        return Duty(read_at=reading.fetched_at)
    current = [shift for shift in reading.shifts if shift.starts_at <= now < shift.ends_at]
    shifts = [shift for shift in current if not shift.problem]
    named = [(shift, list_people_of_shift(shift, policy)) for shift in shifts]
    return Duty(
        people=tuple(sorted({person for _, people in named for person in people})),
        unmatched=tuple(sorted({shift.title for shift, people in named if not people})),
        unclear=tuple(sorted({shift.title for shift in current if shift.problem})),
        ends_at=min((shift.ends_at for shift in shifts), default=0),
        is_known=True,
        read_at=reading.fetched_at,
    )


def list_people_of_shift(shift: Shift, policy: Policy) -> Sequence[str]:
    """Return the people of people.yaml whom a shift names.

    An identity provider chooses the addresses of all others, and gives no duty by one.
    """
    return [
        person.id
        for person in policy.organisation.people.values()
        if person.id in policy.written.people
        and person.email
        and person.email.casefold() in shift.addresses
    ]
