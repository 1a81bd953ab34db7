"""Schedule pages: list, calendar, one schedule with its past runs, and new schedules."""

from calendar import day_name
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Fire, Schedule, ScheduleState
from bot.model import request_form
from bot.model.request_form import RequestSyntaxError
from bot.model.run import RequestOrigin, Run
from bot.model.schedule import (
    SETTING_HINTS,
    ScheduleError,
    ScheduleTiming,
    find_timing_problems,
    parse_cron,
    parse_timing,
)
from bot.policy import Policy
from bot.queries.calendar import DEFAULT_DAYS, build_calendar
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import get_reader_zone, render_page
from connectors.errors import UnknownHostError
from runbooks import AnyRunbook

router = APIRouter(prefix="/schedules")

ScheduleIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]

_MAX_FIRES = 40
_MAX_UPCOMING = 5
# What a recurrence is called, and its cron expression.
_RECURRENCES: Mapping[str, tuple[str, str]] = {
    "5-min": ("Every 5 minutes", "*/5 * * * *"),
    "15-min": ("Every 15 minutes", "*/15 * * * *"),
    "hour": ("Every hour, at the minute of the time", "{minute} * * * *"),
    "day": ("Every day", "{minute} {hour} * * *"),
    "weekdays": ("Monday to Friday", "{minute} {hour} * * 1-5"),
    **{
        day.lower(): (f"Every {day}", f"{{minute}} {{hour}} * * {number}")
        for number, day in enumerate(day_name, start=1)
    },
    "month": ("First day of every month", "{minute} {hour} 1 * *"),
    "month-end": ("Last day of every month", "{minute} {hour} L * *"),
}
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
    upcoming: list[int]
    """Next due times, in microseconds since 1970."""
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
        calendar = build_calendar(tx, user.policy, zone=get_reader_zone(request))
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
    """Show the form; if it is filled in, also its problems."""
    typed = _read_typed(request.query_params)
    if not any(request.query_params.get(name) for name in typed):
        return _render_form(request, deps, user, typed, {})
    problems = _find_problems(deps, typed)
    return _render_form(request, deps, user, typed, problems, status=422 if problems else 200)


@router.get("/timing")
def show_timing(request: Request, deps: WebDeps, user: CurrentUser) -> Response:
    """Return the part of the form that has the cron expression and its next due times.

    With `build`, the expression is that of the selected recurrence and time of day.
    """
    query = request.query_params
    typed = _read_typed(query)
    recurrence = _RECURRENCES.get(query.get("every", ""))
    if recurrence is not None and query.get("build"):
        hour, minute = _parse_time_of_day(query.get("at", ""))
        typed["cron"] = recurrence[1].format(hour=hour, minute=minute)
    return _render_form(request, deps, user, typed, {}, template="schedule_timing.html")


@router.post("")
def request_schedule(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    """Plan the schedule, and redirect to its plan, which can then be requested."""
    typed = _read_typed(form)
    problems = _find_problems(deps, typed)
    if problems:
        return _render_form(request, deps, user, typed, problems, status=422)
    try:
        timing, host_pattern, requests = _parse_schedule(deps, typed)
        run = deps.service.schedules.request_schedule(
            requests,
            host_pattern=host_pattern,
            person=user.id,
            origin=RequestOrigin("web", user=user.id),
            timing=timing,
            reason=typed["reason"],
            plan_only=True,
        )
    except REFUSALS as error:
        problems = {"": str(error)}
        return _render_form(request, deps, user, typed, problems, status=get_http_status(error))
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
        deps.service.schedules.suspend_schedule(
            number, person=user.id, reason=form.get("reason", "").strip()
        )

    return _perform_and_redirect(request, deps, user, number, act, "suspended")


@router.post("/{number}/resume")
def resume_schedule(
    request: Request, deps: WebDeps, user: CurrentUser, number: ScheduleIdPath
) -> Response:
    def act() -> None:
        deps.service.schedules.resume_schedule(number, person=user.id)

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
        deps.service.schedules.end_schedule(
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
        return deps.service.schedules.take_over_schedule(
            number,
            person=user.id,
            origin=RequestOrigin("web", user=user.id),
            reason=form.get("reason", ""),
        ).id

    return _perform_and_redirect(request, deps, user, number, act, "")


def _read_typed(values: Mapping[str, str]) -> dict[str, str]:
    names = ("request", "name", "every", "at", "reason", *SETTING_HINTS)
    return {name: values.get(name, "").strip() for name in names}


def _parse_time_of_day(text: str) -> tuple[int, int]:
    """Return hour and minute; 03:00 for other text, as browsers send only times."""
    hour, _, minute = text.partition(":")
    is_time = hour.isascii() and hour.isdigit() and minute.isascii() and minute.isdigit()
    return (int(hour) % 24, int(minute) % 60) if is_time else (3, 0)


def _get_settings(typed: Mapping[str, str]) -> dict[str, str]:
    return {name: typed[name] for name in SETTING_HINTS if typed[name]}


def _find_problems(deps: WebDependencies, typed: Mapping[str, str]) -> dict[str, str]:
    """Return every problem of the form, by field."""
    problems = find_timing_problems(typed["name"], _get_settings(typed), zone="UTC")
    if not typed["cron"]:
        problems["cron"] = "type when it runs, or select it above"
    try:
        _parse_request(deps, typed["request"])
    except RequestSyntaxError as error:
        problems["request"] = str(error)
    return problems


def _parse_request(deps: WebDependencies, text: str) -> tuple[str, list[AnyRunbook]]:
    """Return the host pattern and the requests. Raises RequestSyntaxError."""
    words = request_form.split_words(text.removeprefix("/keyturn"))
    runbook, values = request_form.find_runbook(words)
    inventory = deps.policies.get_policy().inventory
    host_pattern, requests = request_form.parse_request_for_hosts(runbook, values, inventory.tags)
    for one in requests:
        try:
            inventory[one.target]
        except UnknownHostError as error:
            raise RequestSyntaxError(str(error)) from None
    return host_pattern, requests


def _parse_schedule(
    deps: WebDependencies, typed: Mapping[str, str]
) -> tuple[ScheduleTiming, str, list[AnyRunbook]]:
    timing = parse_timing(typed["name"], _get_settings(typed), zone="UTC")
    return timing, *_parse_request(deps, typed["request"])


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
    deps: WebDependencies,
    user: User,
    typed: Mapping[str, str],
    problems: Mapping[str, str],
    *,
    template: str = "schedule_new.html",
    status: int = 200,
) -> Response:
    """Render the form. problems: by field; that of the whole form has the name ""."""
    zone = typed["zone"] or get_reader_zone(request)
    shown_problems = {**dict.fromkeys(("", *typed), ""), **problems}
    cron = None
    try:
        cron = parse_cron(typed["cron"], zone) if typed["cron"] else None
    except ScheduleError as error:
        if "zone" not in problems:
            shown_problems["cron"] = str(error)
    with deps.database.reading(user.view_rights) as tx:
        now = tx.now
    return render_page(
        request,
        template,
        status=status,
        typed={**typed, "zone": zone},
        problems=shown_problems,
        cron=cron,
        upcoming=cron.list_due_times(now, count=_MAX_UPCOMING) if cron else [],
        recurrences=_RECURRENCES,
        zones=sorted({get_reader_zone(request), "UTC", *(h.zone for h in user.policy.inventory)}),
    )


def _build_shown_schedule(tx: Transaction, schedule: Schedule, user: User) -> ShownSchedule:
    run = runs.get_run(tx, schedule.run)
    is_active = schedule.state is ScheduleState.ACTIVE
    cron_expression = schedule.timing.cron_expression
    return ShownSchedule(
        schedule,
        run,
        last_fire=next(iter(schedules.list_fires(tx, schedule.id, most=1)), None),
        upcoming=cron_expression.list_due_times(tx.now, count=_MAX_UPCOMING) if is_active else [],
        can_manage=_can_manage_schedule(user.policy, user.id, schedule, run),
    )


def _can_manage_schedule(policy: Policy, person: str, schedule: Schedule, run: Run) -> bool:
    area = policy.organisation.areas.get(run.area)
    return person == schedule.owner or (area is not None and person in area.owners)
