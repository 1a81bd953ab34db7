"""On-call: the calendars of oncall.yaml, and who is on duty by them. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bot.policy.people import Text
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
    read_at: int = 0
    """When the calendar was read last; 0 if it was never read."""

    @property
    def is_complete(self) -> bool:
        """Whether it is known how many people are on duty."""
        return self.is_known and not self.unclear
