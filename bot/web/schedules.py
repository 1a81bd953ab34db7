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
from bot.model.run import RequestOrigin, Run
from bot.model.schedule import SETTING_HINTS, ScheduleTiming, parse_timing
from bot.policy import Policy
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page
from bot.workflow.calendar import DEFAULT_DAYS, build_calendar

router = APIRouter(prefix="/schedules")

ScheduleIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]

_MAX_FIRES = 40
_MAX_UPCOMING = 5
_DONE_NOTICES: Mapping[str, str] = {
    "suspended": "It fires no more until somebody resumes it.",
    "resumed": "It fires again, from its next moment on.",
    "ended": "It fires no more.",
}


@dataclass(frozen=True)
class ShownSchedule:
    """A schedule with the request that was approved. coming: its next moments in local time."""

    schedule: Schedule
    run: Run
    last_fire: Fire | None
    upcoming: list[str]
    can_manage: bool


@router.get("")
def list_schedules_page(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, ended: str = ""
) -> Response:
    """Show the schedules, those that fire first; what ended long ago only if it is asked for."""
    with parts.database.reading(visitor.view_rights) as tx:
        listed, older = schedules.list_recent_schedules(tx)
        whole = ended == "all"
        found = [
            _build_shown_schedule(tx, each, visitor)
            for each in (schedules.list_schedules(tx) if whole else listed)
        ]
        missed = schedules.count_missed(tx)
        coming = build_calendar(tx, visitor.policy)
    return render_page(
        request,
        "schedules.html",
        schedules=found,
        missed=missed,
        diary=coming,
        days=DEFAULT_DAYS,
        older=older,
        whole=whole,
        missed_days=schedules.MISSED_DAYS,
        ended_days=schedules.ENDED_DAYS,
    )


@router.get("/new")
def show_new_schedule(request: Request, parts: WebDeps, visitor: CurrentVisitor) -> Response:
    """Show the form; once it is filled in, what it means and when that would be."""
    typed = {
        name: request.query_params.get(name, "") for name in ("name", "request", *SETTING_HINTS)
    }
    if not any(typed.values()):
        return _render_form(request, typed)
    with parts.database.reading(visitor.view_rights) as tx:
        now = tx.now
    try:
        wanted, _, _ = _parse_schedule(parts, typed)
    except REFUSALS as no:
        return _render_form(request, typed, status=get_http_status(no), alert=str(no))
    coming = wanted.cron_expression.format_due_times(now, count=_MAX_UPCOMING)
    return _render_form(request, typed, timing=wanted, upcoming=coming)


@router.post("")
def request_schedule(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    """Ask for the schedule, and go to the run by which it is approved."""
    typed = {name: form.get(name, "") for name in ("name", "request", *SETTING_HINTS)}
    try:
        wanted, spelled, requests = _parse_schedule(parts, typed)
        run = parts.workflow.schedules.request_schedule(
            requests,
            host_pattern=spelled,
            person=visitor.id,
            origin=RequestOrigin("web", user=visitor.id),
            timing=wanted,
            reason=form.get("reason", ""),
        )
    except REFUSALS as no:
        return _render_form(request, typed, status=get_http_status(no), alert=str(no))
    return RedirectResponse(f"/runs/{run.id}", 303)


@router.get("/{number}")
def show_schedule(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    number: ScheduleIdPath,
    done: str = "",
) -> Response:
    return _render_page(request, parts, visitor, number, notice=_DONE_NOTICES.get(done, ""))


@router.post("/{number}/suspend")
def suspend_schedule(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    number: ScheduleIdPath,
    form: FormValues,
) -> Response:
    def act() -> None:
        parts.workflow.schedules.suspend_schedule(
            number, person=visitor.id, reason=form.get("reason", "").strip()
        )

    return _perform_and_redirect(request, parts, visitor, number, act, "suspended")


@router.post("/{number}/resume")
def resume_schedule(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: ScheduleIdPath
) -> Response:
    def act() -> None:
        parts.workflow.schedules.resume_schedule(number, person=visitor.id)

    return _perform_and_redirect(request, parts, visitor, number, act, "resumed")


@router.post("/{number}/end")
def end_schedule(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    number: ScheduleIdPath,
    form: FormValues,
) -> Response:
    def act() -> None:
        parts.workflow.schedules.end_schedule(
            number, person=visitor.id, reason=form.get("reason", "").strip()
        )

    return _perform_and_redirect(request, parts, visitor, number, act, "ended")


@router.post("/{number}/take")
def take_over_schedule(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    number: ScheduleIdPath,
    form: FormValues,
) -> Response:
    """Ask for the same schedule as one's own, and go to the run by which that is approved."""

    def act() -> int:
        return parts.workflow.schedules.take_over_schedule(
            number,
            person=visitor.id,
            origin=RequestOrigin("web", user=visitor.id),
            reason=form.get("reason", ""),
        ).id

    return _perform_and_redirect(request, parts, visitor, number, act, "")


def _parse_schedule(
    parts: WebDependencies, typed: Mapping[str, str]
) -> tuple[ScheduleTiming, str, Any]:
    settings = {name: typed[name].strip() for name in SETTING_HINTS if typed[name].strip()}
    wanted = parse_timing(typed["name"], settings, zone="UTC")
    runbook, values = request_form.find_runbook(
        request_form.split_words(typed["request"].removeprefix("/keyturn").strip())
    )
    tags = parts.policies.get_policy().inventory.tags
    spelled, requests = request_form.parse_request_for_hosts(runbook, values, tags)
    return wanted, spelled, requests


def _perform_and_redirect(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    number: int,
    action: Callable[[], int | None],
    outcome: str,
) -> Response:
    """Do it and show the schedule anew, or show it with the reason why not."""
    try:
        run = action()
    except REFUSALS as no:
        return _render_page(
            request, parts, visitor, number, status=get_http_status(no), alert=str(no)
        )
    onward = f"/schedules/{number}?done={outcome}" if run is None else f"/runs/{run}"
    return RedirectResponse(onward, 303)


def _render_page(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        shown = _build_shown_schedule(tx, schedules.get_schedule(tx, number), visitor)
        fires = schedules.list_fires(tx, number, most=_MAX_FIRES)
    return render_page(
        request,
        "schedule.html",
        status=status,
        shown=shown,
        schedule=shown.schedule,
        fires=fires,
        alert=alert,
        notice=notice,
    )


def _render_form(
    request: Request,
    typed: Mapping[str, str],
    *,
    status: int = 200,
    alert: str = "",
    timing: ScheduleTiming | None = None,
    upcoming: list[str] | None = None,
) -> Response:
    return render_page(
        request,
        "schedule_new.html",
        status=status,
        typed=typed,
        alert=alert,
        wanted=timing,
        coming=upcoming or [],
    )


def _build_shown_schedule(tx: Transaction, schedule: Schedule, visitor: Visitor) -> ShownSchedule:
    run = runs.get_run(tx, schedule.run)
    active = schedule.state is ScheduleState.ACTIVE
    table = schedule.timing.cron_expression
    return ShownSchedule(
        schedule,
        run,
        last_fire=next(iter(schedules.list_fires(tx, schedule.id, most=1)), None),
        upcoming=table.format_due_times(tx.now, count=_MAX_UPCOMING) if active else [],
        can_manage=_can_manage_schedule(visitor.policy, visitor.id, schedule, run),
    )


def _can_manage_schedule(policy: Policy, person: str, schedule: Schedule, run: Run) -> bool:
    area = policy.organisation.areas.get(run.area)
    return person == schedule.owner or (area is not None and person in area.owners)
