"""Whose duty has just begun, for the message of the handover."""

from collections.abc import Sequence

from bot.db.database import Transaction
from bot.features.oncall import rows
from bot.features.oncall.duties import list_people_of_shift
from bot.features.oncall.shift import Shift
from bot.model.times import MINUTE
from bot.policy import Policy
from bot.slack.features import StartedDuty

# Shorter than a sent message is remembered, so that it is sent once.
_MAX_AGE = 10 * MINUTE


def list_started_duties(tx: Transaction, policy: Policy) -> Sequence[StartedDuty]:
    """Return the duties that have begun in the last ten minutes, unless they only go on."""
    if not policy.calendars:
        return []
    readings = rows.list_readings(tx)
    started: list[StartedDuty] = []
    for name, calendar in policy.calendars.items():
        reading = readings.get(name)
        if reading is None or not reading.is_current(calendar, tx.now):
            continue
        for shift in reading.shifts:
            is_new = shift.starts_at <= tx.now < min(shift.starts_at + _MAX_AGE, shift.ends_at)
            if not is_new or shift.problem:
                continue
            before = _list_people_before(reading.shifts, shift, policy)
            started += [
                StartedDuty(person, name, calendar.areas, shift.starts_at, shift.ends_at)
                for person in list_people_of_shift(shift, policy)
                if person not in before
            ]
    return started


def _list_people_before(shifts: Sequence[Shift], new: Shift, policy: Policy) -> set[str]:
    """Return who was on duty when a shift began."""
    return {
        person
        for shift in shifts
        if shift.starts_at < new.starts_at <= shift.ends_at and not shift.problem
        for person in list_people_of_shift(shift, policy)
    }
