"""Readings of the calendars of people on duty, in rows that each have a MAC.

A row gives people a role, so only what Keyturn wrote counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, update

from bot.auth import row_mac
from bot.db import tables
from bot.db.database import Transaction
from bot.features.oncall.shift import Shift, decode_shifts, encode_shifts
from bot.model.times import MINUTE
from bot.policy.oncall import DutyCalendar

_TABLE = tables.oncall_reading
_SECOND = 1_000_000


@dataclass(frozen=True)
class CalendarReading:
    """What was read from a calendar last."""

    source: str
    """DutyCalendar.source of that time."""
    fetched_at: int
    """Microseconds since 1970; 0 if it was never read."""
    next_fetch_at: int
    shifts: Sequence[Shift]
    error: str
    """Why it could not be read since; "" if the last attempt succeeded."""

    def is_current(self, calendar: DutyCalendar, now: int) -> bool:
        return (
            self.source == calendar.source
            and now - self.fetched_at < calendar.max_age_minutes * MINUTE
        )


def list_readings(tx: Transaction) -> Mapping[str, CalendarReading]:
    """Return what was read last, by the name of the calendar."""
    rows = tx.sql.execute(select(_TABLE)).all()
    return {row.name: _parse(row) for row in rows if row_mac.is_mac_valid(tx, _TABLE, row)}


def claim_fetch(tx: Transaction, calendar: DutyCalendar, *, seconds: float) -> bool:
    """Claim the next attempt to read a calendar; False if none is due.

    seconds: until another attempt is due.
    """
    next_fetch_at = tx.now + round(seconds * _SECOND)
    row = _lock(tx, calendar)
    if row is None:
        new: dict[str, Any] = {
            "name": calendar.name,
            "source": calendar.source,
            "fetched_at": 0,
            "next_fetch_at": next_fetch_at,
            "shifts": "[]",
            "error": "",
        }
        return tx.insert_once(_TABLE, **row_mac.add_mac(tx, _TABLE, new))
    if row.source == calendar.source and tx.now < row.next_fetch_at:
        return False
    values: dict[str, Any] = {"next_fetch_at": next_fetch_at}
    if row.source != calendar.source:
        values |= {"source": calendar.source, "fetched_at": 0, "shifts": "[]", "error": ""}
    _update(tx, row, values)
    return True


def store_shifts(tx: Transaction, calendar: DutyCalendar, shifts: Sequence[Shift]) -> None:
    """Store what was read just now."""
    text = encode_shifts(shifts)
    _store(tx, calendar, {"fetched_at": tx.now, "shifts": text, "error": ""})


def store_error(tx: Transaction, calendar: DutyCalendar, error: str) -> None:
    """Store why a calendar cannot be read: its last reading counts until it is too old."""
    _store(tx, calendar, {"error": error})


def delete_other_readings(tx: Transaction, names: Sequence[str]) -> None:
    """Delete the readings of calendars that are not named any more."""
    tx.sql.execute(delete(_TABLE).where(_TABLE.c.name.not_in(names)))


def _lock(tx: Transaction, calendar: DutyCalendar) -> Any:
    """Lock the row of a calendar. A row that Keyturn did not write is replaced."""
    query = select(_TABLE).where(_TABLE.c.name == calendar.name).with_for_update()
    row = tx.sql.execute(query).first()
    if row is None or row_mac.is_mac_valid(tx, _TABLE, row):
        return row
    tx.sql.execute(delete(_TABLE).where(_TABLE.c.name == calendar.name))
    return None


def _store(tx: Transaction, calendar: DutyCalendar, values: Mapping[str, Any]) -> None:
    row = _lock(tx, calendar)
    # The policy may have changed in the meantime.
    if row is not None and row.source == calendar.source:
        _update(tx, row, values)


def _update(tx: Transaction, row: Any, values: Mapping[str, Any]) -> None:
    new = row_mac.amend_with_mac(tx, _TABLE, row, values)
    tx.sql.execute(update(_TABLE).where(_TABLE.c.name == row.name).values(new))


def _parse(row: Any) -> CalendarReading:
    shifts = decode_shifts(row.shifts)
    return CalendarReading(row.source, row.fetched_at, row.next_fetch_at, shifts, row.error)
