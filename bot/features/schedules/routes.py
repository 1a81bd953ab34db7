"""Schedules: list, request, pause, resume, end and take over; and the calendar of due times."""

import datetime
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, Field

from bot.api import records, schemas
from bot.api.auth import Caller, ReadCaller, RequestCaller
from bot.api.deps import ApiParts, Parts
from bot.api.idempotency import IdempotentRoute
from bot.api.schemas_in import (
    InputModel,
    Reason,
    ReasonIn,
    RunbookRequestIn,
    RunId,
    TimeZoneName,
    Word,
)
from bot.db import runs
from bot.db.database import Transaction
from bot.features.schedules import rows
from bot.features.schedules.actions import ScheduleActions
from bot.features.schedules.readings import (
    DEFAULT_DAYS,
    MAX_LISTED_TIMES,
    build_calendar,
    list_recent_schedules,
)
from bot.features.schedules.rows import Schedule
from bot.model.run import RequestTerms, Run
from bot.model.schedule import FireOutcome, ScheduleState, parse_cron, parse_timing

router = APIRouter(prefix="/schedules", tags=["schedules"], route_class=IdempotentRoute)
calendar_router = APIRouter(prefix="/calendar", tags=["schedules"])

_NEXT_COUNT, _FIRE_COUNT = 5, 50


class FireOut(schemas.OutputModel):
    """The outcome of one due time."""

    due_at: schemas.StoredTime
    host: str = Field(description="Empty if the run is for all hosts.")
    outcome: FireOutcome
    run: int | None
    reason: str


class ScheduleOut(schemas.OutputModel):
    """One schedule."""

    id: int
    name: str
    request: str
    hosts: Sequence[str]
    owner: str
    state: ScheduleState
    state_reason: str = Field(description="Why it is in this state.")
    cron: str
    zone: str
    description: str
    next: Sequence[schemas.StoredTime]
    missed: int = Field(
        description="Number of due times in the last 30 days at which Keyturn was not running."
    )
    created_at: schemas.StoredTime
    approved_until: schemas.StoredTime = Field(
        description="When the approval of the schedule expires."
    )
    run: int = Field(description="The run with which the schedule was approved.")


class ScheduleDetailsOut(ScheduleOut):
    """One schedule with the outcomes of its last due times, newest first."""

    fires: Sequence[FireOut]


class ScheduleListOut(schemas.OutputModel):
    schedules: Sequence[ScheduleOut]
    ended_before: int = Field(
        description="Number of schedules that are not listed because they ended over a week ago."
    )


class ScheduleRequestIn(RunbookRequestIn):
    """A request for a schedule; see `keyturn schedule add --help`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "request": "uptime check lb1",
                    "name": "monthly uptime check",
                    "cron": "0 3 1 * *",
                    "zone": "Europe/Amsterdam",
                }
            ]
        }
    )

    name: Word = Field(description="Name of the schedule.")
    cron: Word = Field(description="Cron expression, such as `0 3 1 * *` or `@daily`.")
    zone: Word = Field("UTC", description="Time zone of `cron`, such as Europe/Amsterdam.")
    overlap: Word = Field(
        "skip", description="When the previous run has not ended: skip, queue or cancel."
    )
    catch_up: Word = Field("skip", description="Missed runs: skip, once, or a maximum number.")
    spread: int = Field(0, ge=0, le=99_999, description="Minutes over which the hosts are spread.")
    notify: Word = Field("changes", description="When to notify of results: changes or always.")
    reason: Reason = ""

    @property
    def settings(self) -> dict[str, str]:
        return {
            "cron": self.cron,
            "zone": self.zone,
            "overlap": self.overlap,
            "catch-up": self.catch_up,
            "spread": str(self.spread),
            "notify": self.notify,
        }


class ScheduleQuery(InputModel):
    ended: Literal["recent", "all"] = Field(
        "recent", description="Ended schedules to include: those of the last week, or all."
    )


@router.get("", operation_id="listSchedules", summary="List schedules by next due time")
def list_schedules(
    parts: Parts, caller: ReadCaller, query: Annotated[ScheduleQuery, Query()]
) -> ScheduleListOut:
    with parts.database.reading(caller.view_rights) as tx:
        listed, older = list_recent_schedules(tx)
        if query.ended == "all":
            listed, older = rows.list_schedules(tx), 0
        missed = rows.count_missed(tx)
        found = [
            _describe_schedule(
                tx, schedule, runs.get_run(tx, schedule.run), missed.get(schedule.id, 0)
            )
            for schedule in listed
        ]
    return ScheduleListOut(schedules=[ScheduleOut(**one) for one in found], ended_before=older)


@router.get("/{number}", operation_id="getSchedule", summary="Get a schedule")
def get_schedule(parts: Parts, caller: ReadCaller, number: RunId) -> ScheduleDetailsOut:
    with parts.database.reading(caller.view_rights) as tx:
        schedule = rows.get_schedule(tx, number)
        fires = rows.list_fires(tx, number, most=_FIRE_COUNT)
        missed = rows.count_missed(tx).get(number, 0)
        fields = _describe_schedule(tx, schedule, runs.get_run(tx, schedule.run), missed)
        return ScheduleDetailsOut.model_validate(fields | {"fires": fires})


@router.post("", operation_id="requestSchedule", summary="Request a schedule", status_code=202)
def request_schedule(
    parts: Parts, caller: RequestCaller, body: ScheduleRequestIn, response: Response
) -> schemas.RunDetailsOut:
    """Returns the run with which the schedule is approved."""
    timing = parse_timing(body.name, body.settings, zone="UTC")
    host_pattern, requests = body.parse(caller.policy)
    run = parts.service.request_on_hosts(
        requests,
        RequestTerms(caller.id, caller.origin, reason=body.reason, timing=timing),
        host_pattern=host_pattern,
    )
    return records.respond_with_new_run(parts, caller, run, response)


@router.post("/{number}/suspend", operation_id="suspendSchedule", summary="Suspend a schedule")
def suspend_schedule(
    parts: Parts, caller: RequestCaller, number: RunId, body: ReasonIn
) -> ScheduleDetailsOut:
    with _record_token_use(parts, caller, number, "suspend"):
        parts.service.bind(ScheduleActions).suspend_schedule(
            number, person=caller.id, reason=body.reason.strip()
        )
    return get_schedule(parts, caller, number)


@router.post(
    "/{number}/resume", operation_id="resumeSchedule", summary="Resume a suspended schedule"
)
def resume_schedule(parts: Parts, caller: RequestCaller, number: RunId) -> ScheduleDetailsOut:
    with _record_token_use(parts, caller, number, "resume"):
        parts.service.bind(ScheduleActions).resume_schedule(number, person=caller.id)
    return get_schedule(parts, caller, number)


@router.post("/{number}/end", operation_id="endSchedule", summary="End a schedule permanently")
def end_schedule(
    parts: Parts, caller: RequestCaller, number: RunId, body: ReasonIn
) -> ScheduleDetailsOut:
    with _record_token_use(parts, caller, number, "end"):
        parts.service.bind(ScheduleActions).end_schedule(
            number, person=caller.id, reason=body.reason.strip()
        )
    return get_schedule(parts, caller, number)


@router.post(
    "/{number}/take",
    operation_id="takeOverSchedule",
    summary="Request ownership of a schedule",
    status_code=202,
)
def take_over_schedule(
    parts: Parts, caller: RequestCaller, number: RunId, body: ReasonIn, response: Response
) -> schemas.RunDetailsOut:
    """Returns a run. Once it is approved, the old schedule ends and yours starts."""
    run = parts.service.bind(ScheduleActions).take_over_schedule(
        number, person=caller.id, origin=caller.origin, reason=body.reason
    )
    return records.respond_with_new_run(parts, caller, run, response)


def _record_token_use(
    parts: ApiParts, caller: Caller, number: int, action: str
) -> AbstractContextManager[None]:
    with parts.database.reading(caller.view_rights) as tx:
        schedule = rows.get_schedule(tx, number)
    return records.record_token_use(caller, action, run=schedule.run, schedule=number)


def _describe_schedule(
    tx: Transaction, schedule: Schedule, run: Run, missed: int
) -> dict[str, Any]:
    """Return the fields that a schedule has both in lists and in its details."""
    cron = schedule.timing.cron_expression
    is_active = schedule.state is ScheduleState.ACTIVE
    due_times = cron.list_due_times(tx.now, count=_NEXT_COUNT) if is_active else []
    return {
        "id": schedule.id,
        "name": schedule.timing.name,
        "request": run.request,
        "hosts": run.hosts or (run.host,),
        "owner": schedule.owner,
        "state": schedule.state,
        "state_reason": schedule.reason,
        "cron": cron.cron,
        "zone": cron.zone,
        "description": schedule.timing.description,
        "next": due_times,
        "missed": missed,
        "created_at": schedule.created_at,
        "approved_until": schedule.lapses_at,
        "run": schedule.run,
    }


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
    hosts: Sequence[str] = Field(description="Empty for all hosts of the areas.")
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


@calendar_router.get("", operation_id="getCalendar", summary="List due times and freezes by day")
def get_calendar(
    parts: Parts, caller: ReadCaller, query: Annotated[CalendarQuery, Query()]
) -> CalendarOut:
    with parts.database.reading(caller.view_rights) as tx:
        calendar = build_calendar(tx, caller.policy, days=query.days, zone=query.zone)
    return CalendarOut.model_validate({"days": calendar})


class CronOut(schemas.OutputModel):
    """A cron expression in words, and its next due times."""

    description: str
    next: Sequence[datetime.datetime]


class CronQuery(InputModel):
    cron: Word = Field(description="Cron expression.", examples=["0 3 1 * *"])
    zone: Word = Field("UTC", description="Time zone, such as Europe/Amsterdam.")
    count: int = Field(_NEXT_COUNT, ge=1, le=100, description="Number of due times.")


@calendar_router.get(
    "/cron",
    operation_id="describeCron",
    summary="Get the meaning of a cron expression",
)
def describe_cron(
    parts: Parts, caller: ReadCaller, query: Annotated[CronQuery, Query()]
) -> CronOut:
    cron = parse_cron(query.cron, query.zone)
    with parts.database.reading(caller.view_rights) as tx:
        due_times = cron.list_due_times(tx.now, count=query.count)
    return CronOut(
        description=cron.description, next=[schemas.to_datetime(due) for due in due_times]
    )
