"""Schedule pages: list, calendar, one schedule with its past runs, and new schedules."""

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
from bot.queries.calendar import DEFAULT_DAYS, build_calendar
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page

router = APIRouter(prefix="/schedules")

ScheduleIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]

_MAX_FIRES = 40
_MAX_UPCOMING = 5
_DONE_NOTICES: Mapping[str, str] = {
    "suspended": "The schedule is suspended.",
    "resumed": "The schedule is active again.",
    "ended": "The schedule has ended.",
}


@dataclass(frozen=True)
class ShownSchedule:
    """A schedule with its approved request."""

    schedule: Schedule
    run: Run
    last_fire: Fire | None
    upcoming: list[str]
    """Next due times, in the time zone of the schedule."""
    can_manage: bool


@router.get("")
def list_schedules_page(
    request: Request, deps: WebDeps, user: CurrentUser, ended: str = ""
) -> Response:
    """Show the schedules and the calendar. With `ended=all`, include those that ended long ago."""
    with deps.database.reading(user.view_rights) as tx:
        recent, ended_count = schedules.list_recent_schedules(tx)
        show_all = ended == "all"
        shown = [
            _build_shown_schedule(tx, each, user)
            for each in (schedules.list_schedules(tx) if show_all else recent)
        ]
        missed = schedules.count_missed(tx)
        calendar = build_calendar(tx, user.policy)
    return render_page(
        request,
        "schedules.html",
        schedules=shown,
        missed=missed,
        calendar=calendar,
        days=DEFAULT_DAYS,
        ended_count=ended_count,
        show_all=show_all,
        missed_days=schedules.MISSED_DAYS,
        ended_days=schedules.ENDED_DAYS,
    )


@router.get("/new")
def show_new_schedule(request: Request, deps: WebDeps, user: CurrentUser) -> Response:
    """Show the form; if it is filled in, also a preview of the schedule."""
    typed = {
        name: request.query_params.get(name, "") for name in ("name", "request", *SETTING_HINTS)
    }
    if not any(typed.values()):
        return _render_form(request, typed)
    with deps.database.reading(user.view_rights) as tx:
        now = tx.now
    try:
        timing, _, _ = _parse_schedule(deps, typed)
    except REFUSALS as error:
        return _render_form(request, typed, status=get_http_status(error), alert=str(error))
    upcoming = timing.cron_expression.format_due_times(now, count=_MAX_UPCOMING)
    return _render_form(request, typed, timing=timing, upcoming=upcoming)


@router.post("")
def request_schedule(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    """Request the schedule, and redirect to the run that has to be approved."""
    typed = {name: form.get(name, "") for name in ("name", "request", *SETTING_HINTS)}
    try:
        timing, host_pattern, requests = _parse_schedule(deps, typed)
        run = deps.workflow.schedules.request_schedule(
            requests,
            host_pattern=host_pattern,
            person=user.id,
            origin=RequestOrigin("web", user=user.id),
            timing=timing,
            reason=form.get("reason", ""),
        )
    except REFUSALS as error:
        return _render_form(request, typed, status=get_http_status(error), alert=str(error))
    return RedirectResponse(f"/runs/{run.id}", 303)


@router.get("/{number}")
def show_schedule(
    request: Request,
    deps: WebDeps,
    user: CurrentUser,
    number: ScheduleIdPath,
    done: str = "",
) -> Response:
    return _render_page(request, deps, user, number, notice=_DONE_NOTICES.get(done, ""))


@router.post("/{number}/suspend")
def suspend_schedule(
    request: Request,
    deps: WebDeps,
    user: CurrentUser,
    number: ScheduleIdPath,
    form: FormValues,
) -> Response:
    def act() -> None:
        deps.workflow.schedules.suspend_schedule(
            number, person=user.id, reason=form.get("reason", "").strip()
        )

    return _perform_and_redirect(request, deps, user, number, act, "suspended")


@router.post("/{number}/resume")
def resume_schedule(
    request: Request, deps: WebDeps, user: CurrentUser, number: ScheduleIdPath
) -> Response:
    def act() -> None:
        deps.workflow.schedules.resume_schedule(number, person=user.id)

    return _perform_and_redirect(request, deps, user, number, act, "resumed")


@router.post("/{number}/end")
def end_schedule(
    request: Request,
    deps: WebDeps,
    user: CurrentUser,
    number: ScheduleIdPath,
    form: FormValues,
) -> Response:
    def act() -> None:
        deps.workflow.schedules.end_schedule(
            number, person=user.id, reason=form.get("reason", "").strip()
        )

    return _perform_and_redirect(request, deps, user, number, act, "ended")


@router.post("/{number}/take-over")
def take_over_schedule(
    request: Request,
    deps: WebDeps,
    user: CurrentUser,
    number: ScheduleIdPath,
    form: FormValues,
) -> Response:
    """Request the same schedule as its new owner, and redirect to the run to approve."""

    def act() -> int:
        return deps.workflow.schedules.take_over_schedule(
            number,
            person=user.id,
            origin=RequestOrigin("web", user=user.id),
            reason=form.get("reason", ""),
        ).id

    return _perform_and_redirect(request, deps, user, number, act, "")


def _parse_schedule(
    deps: WebDependencies, typed: Mapping[str, str]
) -> tuple[ScheduleTiming, str, Any]:
    settings = {name: typed[name].strip() for name in SETTING_HINTS if typed[name].strip()}
    timing = parse_timing(typed["name"], settings, zone="UTC")
    runbook, values = request_form.find_runbook(
        request_form.split_words(typed["request"].removeprefix("/keyturn").strip())
    )
    tags = deps.policies.get_policy().inventory.tags
    host_pattern, requests = request_form.parse_request_for_hosts(runbook, values, tags)
    return timing, host_pattern, requests


def _perform_and_redirect(
    request: Request,
    deps: WebDependencies,
    user: User,
    number: int,
    action: Callable[[], int | None],
    outcome: str,
) -> Response:
    """Run *action* and redirect to the schedule or run, or show the page with the error."""
    try:
        run = action()
    except REFUSALS as error:
        return _render_page(
            request, deps, user, number, status=get_http_status(error), alert=str(error)
        )
    target = f"/schedules/{number}?done={outcome}" if run is None else f"/runs/{run}"
    return RedirectResponse(target, 303)


def _render_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
) -> Response:
    with deps.database.reading(user.view_rights) as tx:
        shown = _build_shown_schedule(tx, schedules.get_schedule(tx, number), user)
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
        timing=timing,
        upcoming=upcoming or [],
    )


def _build_shown_schedule(tx: Transaction, schedule: Schedule, user: User) -> ShownSchedule:
    run = runs.get_run(tx, schedule.run)
    is_active = schedule.state is ScheduleState.ACTIVE
    cron_expression = schedule.timing.cron_expression
    return ShownSchedule(
        schedule,
        run,
        last_fire=next(iter(schedules.list_fires(tx, schedule.id, most=1)), None),
        upcoming=cron_expression.format_due_times(tx.now, count=_MAX_UPCOMING)
        if is_active
        else [],
        can_manage=_can_manage_schedule(user.policy, user.id, schedule, run),
    )


def _can_manage_schedule(policy: Policy, person: str, schedule: Schedule, run: Run) -> bool:
    area = policy.organisation.areas.get(run.area)
    return person == schedule.owner or (area is not None and person in area.owners)
