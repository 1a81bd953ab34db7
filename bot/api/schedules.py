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
from bot.audit.change_log import Draft
from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Fire, FireOutcome, Schedule, ScheduleState
from bot.model.run import Run
from bot.model.schedule import parse_timing

router = APIRouter(prefix="/schedules", tags=["schedules"], route_class=Once)

_NEXT, _NEWEST = 5, 50


class FireShape(schemas.Shape):
    """What became of one moment. host: empty for all at once."""

    due: datetime
    host: str
    outcome: FireOutcome
    run: int | None
    why: str

    @classmethod
    def of(cls, fire: Fire) -> "FireShape":
        return cls(
            due=schemas.at(fire.due),
            host=fire.host,
            outcome=fire.outcome,
            run=fire.run,
            why=fire.why,
        )


class ScheduleShape(schemas.Shape):
    """One schedule. run: the request that was approved for it. why: of its standing.

    missed: moments of the last 30 days at which Keyturn was not running.
    """

    id: int
    name: str
    request: str
    hosts: Sequence[str]
    owner: str
    standing: ScheduleState
    why: str
    cron: str
    zone: str
    in_words: str
    next: Sequence[datetime]
    missed: int
    began_at: datetime
    lapses_at: datetime
    run: int


class ScheduleInFull(ScheduleShape):
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
def show(parts: Here, caller: Reading, number: Number) -> ScheduleInFull:
    return _told(parts, caller, number)


@router.post(
    "",
    operation_id="askForSchedule",
    summary="Ask for a schedule: the run by which it is approved",
    status_code=202,
    dependencies=[DESCRIBED],
)
def ask(parts: Here, caller: Asking, order: ScheduleOrder, answer: Response) -> schemas.RunInFull:
    wanted = parse_timing(order.name, order.settings, zone="UTC")
    spelled, requests = order.understood(caller.policy)
    run = parts.workflow.schedules.ask(
        requests,
        spelled=spelled,
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
def suspend(parts: Here, caller: Asking, number: Number, given: Because) -> ScheduleInFull:
    def act() -> None:
        parts.workflow.schedules.suspend(number, person=caller.id, why=given.reason.strip())

    return _done(parts, caller, number, "suspend", act)


@router.post(
    "/{number}/resume",
    operation_id="resumeSchedule",
    summary="Let it fire again, from its next moment on",
    dependencies=[DESCRIBED],
)
def resume(parts: Here, caller: Asking, number: Number) -> ScheduleInFull:
    def act() -> None:
        parts.workflow.schedules.resume(number, person=caller.id)

    return _done(parts, caller, number, "resume", act)


@router.post(
    "/{number}/end",
    operation_id="endSchedule",
    summary="Let it fire no more, for good",
    dependencies=[DESCRIBED],
)
def end(parts: Here, caller: Asking, number: Number, given: Because) -> ScheduleInFull:
    def act() -> None:
        parts.workflow.schedules.end(number, person=caller.id, why=given.reason.strip())

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
) -> schemas.RunInFull:
    run = parts.workflow.schedules.take(
        number, person=caller.id, origin=caller.origin, reason=given.reason
    )
    return records.respond_with_request(parts, caller, run, answer)


def _done(
    parts: ApiParts, caller: Caller, number: int, what: str, act: Callable[[], None]
) -> ScheduleInFull:
    """Do it, with a note in the log by which token, and tell the schedule as it is by then."""
    with parts.database.reading(caller.sight) as tx:
        found = schedules.get_schedule(tx, number)
    used = {"schedule": number, "token": caller.token.prefix, "to": what}
    with change_log.announced_by(Draft("token used", found.run, caller.id, facts=used)):
        act()
    return _told(parts, caller, number)


def _told(parts: ApiParts, caller: Caller, number: int) -> ScheduleInFull:
    with parts.database.reading(caller.sight) as tx:
        found = schedules.get_schedule(tx, number)
        fires = [FireShape.of(fire) for fire in schedules.list_fires(tx, number, most=_NEWEST)]
        missed = schedules.count_missed(tx).get(number, 0)
        drawn = _drawn(tx, found, runs.get_run(tx, found.run), missed)
        return ScheduleInFull(**drawn, fires=fires)


def _drawn(tx: Transaction, found: Schedule, run: Run, missed: int) -> dict[str, Any]:
    table = found.timing.timetable
    active = found.standing is ScheduleState.ACTIVE
    coming = table.next(tx.now, count=_NEXT) if active else []
    return {
        "id": found.id,
        "name": found.timing.name,
        "request": run.request,
        "hosts": run.hosts or (run.host,),
        "owner": found.owner,
        "standing": found.standing,
        "why": found.why,
        "cron": table.cron,
        "zone": table.zone,
        "in_words": found.timing.words,
        "next": [schemas.at(due) for due in coming],
        "missed": missed,
        "began_at": schemas.at(found.began),
        "lapses_at": schemas.at(found.lapses),
        "run": found.run,
    }
