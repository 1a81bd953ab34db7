"""Schedules: what fires by the clock, asked for, suspended, resumed, ended and taken over."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from bot.api import records, schemas
from bot.api.auth import Asking, Caller, Reading
from bot.api.deps import ApiParts, Here
from bot.api.idempotency import DESCRIBED, Once
from bot.api.schemas_in import Because, Given, Number, ScheduleOrder
from bot.audit import change_log
from bot.audit.change_log import EntryDraft
from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Fire, FireOutcome, Schedule, ScheduleState
from bot.model.run import Run
from bot.model.schedule import parse_timing

router = APIRouter(prefix="/schedules", tags=["schedules"], route_class=Once)

_NEXT, _NEWEST = 5, 50


class FireShape(schemas.Shape):
    """What became of one moment. host: empty for all at once."""

    due_at: datetime
    host: str
    outcome: FireOutcome
    run: int | None
    reason: str

    @classmethod
    def of(cls, fire: Fire) -> "FireShape":
        return cls(
            due_at=schemas.to_datetime(fire.due_at),
            host=fire.host,
            outcome=fire.outcome,
            run=fire.run,
            reason=fire.reason,
        )


class ScheduleShape(schemas.Shape):
    """One schedule. run: the request that was approved for it. state_reason: of its state.

    missed: moments of the last 30 days at which Keyturn was not running.
    """

    id: int
    name: str
    request: str
    hosts: Sequence[str]
    owner: str
    state: ScheduleState
    state_reason: str
    cron: str
    zone: str
    description: str
    next: Sequence[datetime]
    missed: int
    created_at: datetime
    lapses_at: datetime
    run: int


class ScheduleDetails(ScheduleShape):
    """One schedule, and what became of its newest moments, the newest first."""

    fires: Sequence[FireShape]


class ScheduleList(schemas.Shape):
    """ended_before: how many are left out, since they ended more than a week ago."""

    schedules: Sequence[ScheduleShape]
    ended_before: int


class ScheduleFilter(Given):
    ended: Literal["lately", "all"] = Field(
        "lately", description="Of those that have ended, only what did within a week, or all."
    )


@router.get("", operation_id="listSchedules", summary="List schedules, those that fire first")
def listing(
    parts: Here, caller: Reading, wanted: Annotated[ScheduleFilter, Query()]
) -> ScheduleList:
    with parts.database.reading(caller.sight) as tx:
        listed, older = schedules.list_recent_schedules(tx)
        if wanted.ended == "all":
            listed, older = schedules.list_schedules(tx), 0
        missed = schedules.count_missed(tx)
        found = [
            _drawn(tx, each, runs.get_run(tx, each.run), missed.get(each.id, 0)) for each in listed
        ]
    return ScheduleList(schedules=[ScheduleShape(**one) for one in found], ended_before=older)


@router.get("/{number}", operation_id="getSchedule", summary="Tell all about one schedule")
def show(parts: Here, caller: Reading, number: Number) -> ScheduleDetails:
    return _told(parts, caller, number)


@router.post(
    "",
    operation_id="askForSchedule",
    summary="Ask for a schedule: the run by which it is approved",
    status_code=202,
    dependencies=[DESCRIBED],
)
def ask(parts: Here, caller: Asking, order: ScheduleOrder, answer: Response) -> schemas.RunDetails:
    wanted = parse_timing(order.name, order.settings, zone="UTC")
    spelled, requests = order.understood(caller.policy)
    run = parts.workflow.schedules.request_schedule(
        requests,
        host_pattern=spelled,
        person=caller.id,
        origin=caller.origin,
        timing=wanted,
        reason=order.reason,
    )
    return records.respond_with_request(parts, caller, run, answer)


@router.post(
    "/{number}/suspend",
    operation_id="suspendSchedule",
    summary="Let it fire no more until it is resumed",
    dependencies=[DESCRIBED],
)
def suspend(parts: Here, caller: Asking, number: Number, given: Because) -> ScheduleDetails:
    def act() -> None:
        parts.workflow.schedules.suspend_schedule(
            number, person=caller.id, reason=given.reason.strip()
        )

    return _done(parts, caller, number, "suspend", act)


@router.post(
    "/{number}/resume",
    operation_id="resumeSchedule",
    summary="Let it fire again, from its next moment on",
    dependencies=[DESCRIBED],
)
def resume(parts: Here, caller: Asking, number: Number) -> ScheduleDetails:
    def act() -> None:
        parts.workflow.schedules.resume_schedule(number, person=caller.id)

    return _done(parts, caller, number, "resume", act)


@router.post(
    "/{number}/end",
    operation_id="endSchedule",
    summary="Let it fire no more, for good",
    dependencies=[DESCRIBED],
)
def end(parts: Here, caller: Asking, number: Number, given: Because) -> ScheduleDetails:
    def act() -> None:
        parts.workflow.schedules.end_schedule(
            number, person=caller.id, reason=given.reason.strip()
        )

    return _done(parts, caller, number, "end", act)


@router.post(
    "/{number}/take",
    operation_id="takeSchedule",
    summary="Ask for the same schedule as your own",
    status_code=202,
    dependencies=[DESCRIBED],
)
def take(
    parts: Here, caller: Asking, number: Number, given: Because, answer: Response
) -> schemas.RunDetails:
    run = parts.workflow.schedules.take_over_schedule(
        number, person=caller.id, origin=caller.origin, reason=given.reason
    )
    return records.respond_with_request(parts, caller, run, answer)


def _done(
    parts: ApiParts, caller: Caller, number: int, what: str, act: Callable[[], None]
) -> ScheduleDetails:
    """Do it, with a note in the log by which token, and tell the schedule as it is by then."""
    with parts.database.reading(caller.sight) as tx:
        found = schedules.get_schedule(tx, number)
    used = {"schedule": number, "token": caller.token.prefix, "action": what}
    with change_log.announce_with_next_entry(
        EntryDraft("token used", found.run, caller.id, facts=used)
    ):
        act()
    return _told(parts, caller, number)


def _told(parts: ApiParts, caller: Caller, number: int) -> ScheduleDetails:
    with parts.database.reading(caller.sight) as tx:
        found = schedules.get_schedule(tx, number)
        fires = [FireShape.of(fire) for fire in schedules.list_fires(tx, number, most=_NEWEST)]
        missed = schedules.count_missed(tx).get(number, 0)
        drawn = _drawn(tx, found, runs.get_run(tx, found.run), missed)
        return ScheduleDetails(**drawn, fires=fires)


def _drawn(tx: Transaction, found: Schedule, run: Run, missed: int) -> dict[str, Any]:
    table = found.timing.cron_expression
    active = found.state is ScheduleState.ACTIVE
    coming = table.list_due_times(tx.now, count=_NEXT) if active else []
    return {
        "id": found.id,
        "name": found.timing.name,
        "request": run.request,
        "hosts": run.hosts or (run.host,),
        "owner": found.owner,
        "state": found.state,
        "state_reason": found.reason,
        "cron": table.cron,
        "zone": table.zone,
        "description": found.timing.description,
        "next": [schemas.to_datetime(due) for due in coming],
        "missed": missed,
        "created_at": schemas.to_datetime(found.created_at),
        "lapses_at": schemas.to_datetime(found.lapses_at),
        "run": found.run,
    }
