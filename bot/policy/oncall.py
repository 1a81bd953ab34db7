"""On-call: the calendars of oncall.yaml, and who is on duty by their shifts. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bot.model.shift import Shift
from bot.model.times import MINUTE
from bot.policy.people import Organisation, Text
from connectors.inventory import Name, Zone

ROLE_PREFIX = "oncall:"
NO_DUTIES = "no one counts as on duty, because on-call calendars are not read here"


class DutyCalendar(BaseModel):
    """A calendar in iCalendar format (RFC 5545), whose events are shifts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    address: Annotated[str, Field(pattern=r"^(https|webcal)://[!-~]+$", max_length=500)] | None = (
        None
    )
    """Its address; webcal:// means https://."""
    address_file: Text | None = None
    """The file with its address, for an address that is a secret."""
    file: Text | None = None
    """Or the calendar itself. Files are relative to the policy directory."""
    private: bool = False
    """Whether the address may be in a private network."""
    areas: Sequence[Name] = ()
    """The names of areas; every area if omitted."""
    zone: Zone = "UTC"
    """The time zone of events that name none, such as those of whole days."""
    max_age_minutes: Annotated[int, Field(ge=15, le=7 * 24 * 60)] = 60
    """No one is on duty by a reading that is older."""

    @model_validator(mode="after")
    def _check_one_location(self) -> "DutyCalendar":
        if sum(one is not None for one in (self.address, self.address_file, self.file)) != 1:
            raise ValueError("set one of address, address_file or file to where the calendar is")
        return self

    @property
    def role(self) -> str:
        """The role that it gives: `oncall:edge`."""
        return f"{ROLE_PREFIX}{self.name}"

    @property
    def source(self) -> str:
        """A digest of where it is read from and how: 64 hex digits."""
        read_by = self.model_dump_json(exclude={"areas", "max_age_minutes"})
        return hashlib.sha256(read_by.encode()).hexdigest()

    def covers_area(self, area: str) -> bool:
        return not self.areas or area in self.areas


class CalendarList(BaseModel):
    """All calendars of a policy, by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    oncall: Mapping[Name, DutyCalendar] = {}


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


@dataclass(frozen=True)
class Duty:
    """Who is on duty by one calendar."""

    people: Sequence[str] = ()
    """Their ids, sorted."""
    unmatched: Sequence[str] = ()
    """The titles of current shifts that name no one of people.yaml, sorted."""
    unclear: Sequence[str] = ()
    """The titles of shifts that are not understood and may be current, sorted."""
    ends_at: int = 0
    """When the first current shift ends; 0 if there is none."""
    is_known: bool = False
    """Whether the reading is current; if not, no one is on duty."""

    @property
    def is_complete(self) -> bool:
        """Whether it is known how many people are on duty."""
        return self.is_known and not self.unclear


def compute_duty(
    calendar: DutyCalendar,
    reading: CalendarReading | None,
    organisation: Organisation,
    now: int,
) -> Duty:
    """Return who is on duty now; no one by a reading that is too old."""
    if reading is None or not reading.is_current(calendar, now):
        return Duty()
    current = [shift for shift in reading.shifts if shift.starts_at <= now < shift.ends_at]
    shifts = [shift for shift in current if not shift.problem]
    named = [(shift, _find_people(shift, organisation)) for shift in shifts]
    return Duty(
        people=tuple(sorted({person for _, people in named for person in people})),
        unmatched=tuple(sorted({shift.title for shift, people in named if not people})),
        unclear=tuple(sorted({shift.title for shift in current if shift.problem})),
        ends_at=min((shift.ends_at for shift in shifts), default=0),
        is_known=True,
    )


def _find_people(shift: Shift, organisation: Organisation) -> Sequence[str]:
    return [
        person.id
        for person in organisation.people.values()
        if person.email and person.email.casefold() in shift.addresses
    ]
