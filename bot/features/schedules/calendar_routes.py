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
from bot.features.schedules.readings import DEFAULT_DAYS, MAX_LISTED_TIMES, build_calendar

router = APIRouter(tags=["schedules"])


class UpcomingFiresOut(schemas.OutputModel):
    """The due times of one schedule on one day."""

    schedule: int
    name: str
    request: str
    owner: str
    times: Sequence[schemas.StoredTime] = Field(
        description=f"The first due times, at most {MAX_LISTED_TIMES}."
    )
    count: int = Field(description="Number of all due times of the day.")
    interval_seconds: schemas.WholeSeconds = Field(
        validation_alias="interval",
        description="Seconds between any two due times in a row; 0 if that differs.",
    )
    skipped: int = Field(description="Number of due times that a freeze skips.")
    freeze: str


class CalendarFreezeOut(schemas.OutputModel):
    """A freeze, cut to the day."""

    name: str
    areas: Sequence[str] = Field(description="Empty for all areas.")
    begins_at: schemas.StoredTime
    ends_at: schemas.StoredTime


class CalendarDayOut(schemas.OutputModel):
    """One day in the time zone."""

    date: datetime.date
    fires: Sequence[UpcomingFiresOut] = Field(validation_alias="upcoming")
    freezes: Sequence[CalendarFreezeOut]


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
    return CalendarOut.model_validate({"days": calendar})
