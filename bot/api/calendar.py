"""The calendar: what fires in the coming days, and the freezes, for programs."""

import datetime
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api import schemas
from bot.api.auth import Reading
from bot.api.deps import Here
from bot.api.schemas_in import Given
from bot.workflow.calendar import (
    DEFAULT_DAYS,
    CalendarDay,
    CalendarFreeze,
    UpcomingFires,
    build_calendar,
)

router = APIRouter(tags=["schedules"])


class UpcomingShape(schemas.Shape):
    """The moments of one schedule in a day. left_out: how many of them a freeze holds up."""

    schedule: int
    name: str
    request: str
    owner: str
    times: Sequence[datetime.datetime]
    skipped: int
    freeze: str

    @classmethod
    def of(cls, one: UpcomingFires) -> "UpcomingShape":
        return cls(
            schedule=one.schedule,
            name=one.name,
            request=one.request,
            owner=one.owner,
            times=[schemas.to_datetime(due) for due in one.times],
            skipped=one.skipped,
            freeze=one.freeze,
        )


class FreezeShape(schemas.Shape):
    """A freeze, as far as it holds within the day. areas: none for all of them."""

    name: str
    areas: Sequence[str]
    begins_at: datetime.datetime
    ends_at: datetime.datetime

    @classmethod
    def of(cls, one: CalendarFreeze) -> "FreezeShape":
        begin, end = schemas.to_datetime(one.begins_at), schemas.to_datetime(one.ends_at)
        return cls(name=one.name, areas=one.areas, begins_at=begin, ends_at=end)


class DayShape(schemas.Shape):
    """One day in UTC."""

    date: datetime.date
    fires: Sequence[UpcomingShape]
    freezes: Sequence[FreezeShape]

    @classmethod
    def of(cls, day: CalendarDay) -> "DayShape":
        return cls(
            date=day.date,
            fires=[UpcomingShape.of(one) for one in day.upcoming],
            freezes=[FreezeShape.of(one) for one in day.freezes],
        )


class Calendar(schemas.Shape):
    """cut: schedules that fire too often to be followed to the end of it."""

    days: Sequence[DayShape]
    cut: Sequence[str]


class Ahead(Given):
    days: int = Field(DEFAULT_DAYS, ge=1, le=92)


@router.get("/calendar", operation_id="getCalendar", summary="Say what fires in the coming days")
def calendar(parts: Here, caller: Reading, wanted: Annotated[Ahead, Query()]) -> Calendar:
    with parts.database.reading(caller.sight) as tx:
        found = build_calendar(tx, caller.policy, days=wanted.days)
    return Calendar(days=[DayShape.of(day) for day in found.days], cut=found.truncated_schedules)
