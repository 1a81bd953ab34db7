"""Schedules: what fires by the clock, when next, what became of the last moments; and new ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Fire, Schedule, ScheduleState
from bot.model import request_form
from bot.model.run import Origin, Run
from bot.model.schedule import SETTINGS, ScheduleTiming, parse_timing
from bot.policy import Policy
from bot.web.auth import Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.refusals import NOES, status_of
from bot.web.templating import page
from bot.workflow.calendar import DAYS, build_calendar

router = APIRouter(prefix="/schedules")

Number = Annotated[int, Path(ge=1, le=2_147_483_647)]

_NEWEST = 40
_NEXT = 5
_DONE: Mapping[str, str] = {
    "suspended": "It fires no more until somebody resumes it.",
    "resumed": "It fires again, from its next moment on.",
    "ended": "It fires no more.",
}


@dataclass(frozen=True)
class Shown:
    """A schedule with the request that was approved. coming: its next moments in local time."""

    schedule: Schedule
    run: Run
    last: Fire | None
    coming: list[str]
    keeps: bool


@router.get("")
def listing(request: Request, parts: Here, visitor: Visiting, ended: str = "") -> Response:
    """Show the schedules, those that fire first; what ended long ago only if it is asked for."""
    with parts.database.reading(visitor.sight) as tx:
        listed, older = schedules.list_recent_schedules(tx)
        whole = ended == "all"
        found = [
            _shown(tx, each, visitor)
            for each in (schedules.list_schedules(tx) if whole else listed)
        ]
        missed = schedules.count_missed(tx)
        coming = build_calendar(tx, visitor.policy)
    return page(
        request,
        "schedules.html",
        schedules=found,
        missed=missed,
        diary=coming,
        days=DAYS,
        older=older,
        whole=whole,
        missed_days=schedules.MISSED_DAYS,
        ended_days=schedules.ENDED_DAYS,
    )


@router.get("/new")
def new(request: Request, parts: Here, visitor: Visiting) -> Response:
    """Show the form; once it is filled in, what it means and when that would be."""
    typed = {name: request.query_params.get(name, "") for name in ("name", "request", *SETTINGS)}
    if not any(typed.values()):
        return _form(request, typed)
    with parts.database.reading(visitor.sight) as tx:
        now = tx.now
    try:
        wanted, _, _ = _understood(parts, typed)
    except NOES as no:
        return _form(request, typed, status=status_of(no), alert=str(no))
    coming = wanted.timetable.spoken(now, count=_NEXT)
    return _form(request, typed, wanted=wanted, coming=coming)


@router.post("")
def ask(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    """Ask for the schedule, and go to the run by which it is approved."""
    typed = {name: form.get(name, "") for name in ("name", "request", *SETTINGS)}
    try:
        wanted, spelled, requests = _understood(parts, typed)
        run = parts.workflow.schedules.ask(
            requests,
            spelled=spelled,
            person=visitor.id,
            origin=Origin("web", user=visitor.id),
            timing=wanted,
            reason=form.get("reason", ""),
        )
    except NOES as no:
        return _form(request, typed, status=status_of(no), alert=str(no))
    return RedirectResponse(f"/runs/{run.id}", 303)


@router.get("/{number}")
def show(
    request: Request, parts: Here, visitor: Visiting, number: Number, done: str = ""
) -> Response:
    return _page(request, parts, visitor, number, notice=_DONE.get(done, ""))


@router.post("/{number}/suspend")
def suspend(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    def act() -> None:
        parts.workflow.schedules.suspend(
            number, person=visitor.id, why=form.get("reason", "").strip()
        )

    return _done(request, parts, visitor, number, act, "suspended")


@router.post("/{number}/resume")
def resume(request: Request, parts: Here, visitor: Visiting, number: Number) -> Response:
    def act() -> None:
        parts.workflow.schedules.resume(number, person=visitor.id)

    return _done(request, parts, visitor, number, act, "resumed")


@router.post("/{number}/end")
def end(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    def act() -> None:
        parts.workflow.schedules.end(number, person=visitor.id, why=form.get("reason", "").strip())

    return _done(request, parts, visitor, number, act, "ended")


@router.post("/{number}/take")
def take(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Ask for the same schedule as one's own, and go to the run by which that is approved."""

    def act() -> int:
        return parts.workflow.schedules.take(
            number,
            person=visitor.id,
            origin=Origin("web", user=visitor.id),
            reason=form.get("reason", ""),
        ).id

    return _done(request, parts, visitor, number, act, "")


def _understood(parts: WebParts, typed: Mapping[str, str]) -> tuple[ScheduleTiming, str, Any]:
    settings = {name: typed[name].strip() for name in SETTINGS if typed[name].strip()}
    wanted = parse_timing(typed["name"], settings, zone="UTC")
    runbook, values = request_form.find_runbook(
        request_form.split_words(typed["request"].removeprefix("/keyturn").strip())
    )
    tags = parts.policies.current().inventory.tags
    spelled, requests = request_form.parse_for_hosts(runbook, values, tags)
    return wanted, spelled, requests


def _done(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    number: int,
    act: Callable[[], int | None],
    word: str,
) -> Response:
    """Do it and show the schedule anew, or show it with the reason why not."""
    try:
        run = act()
    except NOES as no:
        return _page(request, parts, visitor, number, status=status_of(no), alert=str(no))
    onward = f"/schedules/{number}?done={word}" if run is None else f"/runs/{run}"
    return RedirectResponse(onward, 303)


def _page(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
) -> Response:
    with parts.database.reading(visitor.sight) as tx:
        shown = _shown(tx, schedules.get_schedule(tx, number), visitor)
        fires = schedules.list_fires(tx, number, most=_NEWEST)
    return page(
        request,
        "schedule.html",
        status=status,
        shown=shown,
        schedule=shown.schedule,
        fires=fires,
        alert=alert,
        notice=notice,
    )


def _form(
    request: Request,
    typed: Mapping[str, str],
    *,
    status: int = 200,
    alert: str = "",
    wanted: ScheduleTiming | None = None,
    coming: list[str] | None = None,
) -> Response:
    return page(
        request,
        "schedule_new.html",
        status=status,
        typed=typed,
        alert=alert,
        wanted=wanted,
        coming=coming or [],
    )


def _shown(tx: Transaction, schedule: Schedule, visitor: Visitor) -> Shown:
    run = runs.get_run(tx, schedule.run)
    active = schedule.standing is ScheduleState.ACTIVE
    table = schedule.timing.timetable
    return Shown(
        schedule,
        run,
        last=next(iter(schedules.list_fires(tx, schedule.id, most=1)), None),
        coming=table.spoken(tx.now, count=_NEXT) if active else [],
        keeps=_keeps(visitor.policy, visitor.id, schedule, run),
    )


def _keeps(policy: Policy, person: str, schedule: Schedule, run: Run) -> bool:
    area = policy.household.areas.get(run.area)
    return person == schedule.owner or (area is not None and person in area.owners)
