"""The calendar: due times of schedules in the coming days, and freezes."""

import datetime
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import InputModel, TimeZoneName
from bot.queries.calendar import (
    DEFAULT_DAYS,
    MAX_LISTED_TIMES,
    CalendarDay,
    CalendarFreeze,
    UpcomingFires,
    build_calendar,
)

router = APIRouter(tags=["schedules"])


class UpcomingFiresOut(schemas.OutputModel):
    """The due times of one schedule on one day."""

    schedule: int
    name: str
    request: str
    owner: str
    times: Sequence[datetime.datetime] = Field(
        description=f"The first due times, at most {MAX_LISTED_TIMES}."
    )
    count: int = Field(description="Number of all due times of the day.")
    interval_seconds: int = Field(
        description="Seconds between any two due times in a row; 0 if that differs."
    )
    skipped: int = Field(description="Number of due times that a freeze skips.")
    freeze: str

    @classmethod
    def from_fires(cls, fires: UpcomingFires) -> "UpcomingFiresOut":
        return cls(
            schedule=fires.schedule,
            name=fires.name,
            request=fires.request,
            owner=fires.owner,
            times=[schemas.to_datetime(due) for due in fires.times],
            count=fires.count,
            interval_seconds=fires.interval // 1_000_000,
            skipped=fires.skipped,
            freeze=fires.freeze,
        )


class CalendarFreezeOut(schemas.OutputModel):
    """A freeze, cut to the day."""

    name: str
    areas: Sequence[str] = Field(description="Empty for all areas.")
    begins_at: datetime.datetime
    ends_at: datetime.datetime

    @classmethod
    def from_freeze(cls, freeze: CalendarFreeze) -> "CalendarFreezeOut":
        return cls(
            name=freeze.name,
            areas=freeze.areas,
            begins_at=schemas.to_datetime(freeze.begins_at),
            ends_at=schemas.to_datetime(freeze.ends_at),
        )


class CalendarDayOut(schemas.OutputModel):
    """One day in the time zone."""

    date: datetime.date
    fires: Sequence[UpcomingFiresOut]
    freezes: Sequence[CalendarFreezeOut]

    @classmethod
    def from_day(cls, day: CalendarDay) -> "CalendarDayOut":
        return cls(
            date=day.date,
            fires=[UpcomingFiresOut.from_fires(fires) for fires in day.upcoming],
            freezes=[CalendarFreezeOut.from_freeze(freeze) for freeze in day.freezes],
        )


class CalendarOut(schemas.OutputModel):
    days: Sequence[CalendarDayOut]


class CalendarQuery(InputModel):
    days: int = Field(DEFAULT_DAYS, ge=1, le=92, description="Number of days from today.")
    zone: TimeZoneName = "UTC"


@router.get("/calendar", operation_id="getCalendar", summary="List due times and freezes by day")
def get_calendar(
    parts: Parts, caller: ReadCaller, query: Annotated[CalendarQuery, Query()]
) -> CalendarOut:
    with parts.database.reading(caller.view_rights) as tx:
        calendar = build_calendar(tx, caller.policy, days=query.days, zone=query.zone)
    return CalendarOut(days=[CalendarDayOut.from_day(day) for day in calendar])
