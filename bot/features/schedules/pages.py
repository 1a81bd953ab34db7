"""Schedule pages: list, calendar, one schedule with its past runs, and new schedules."""

from calendar import day_name
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from bot.db import runs
from bot.db.database import Transaction
from bot.features.schedules import rows
from bot.features.schedules.actions import ScheduleActions
from bot.features.schedules.approval import list_managers
from bot.features.schedules.readings import (
    DEFAULT_DAYS,
    build_calendar,
    list_recent_schedules,
)
from bot.features.schedules.rows import Fire, Schedule
from bot.model import request_form
from bot.model.request_form import RequestSyntaxError
from bot.model.run import RequestTerms, Run
from bot.model.run_states import StatusDisplay, Tone
from bot.model.schedule import (
    SETTING_HINTS,
    FireOutcome,
    ScheduleError,
    ScheduleState,
    find_timing_problems,
    parse_cron,
    parse_timing,
)
from bot.queries.approval_count import get_ruling
from bot.web.auth import User
from bot.web.pages import HomeTile, PageLink, Pages
from bot.web.templating import get_reader_zone
from bot.web.visit import IdPath, PageQuery, Visit, VisitOfPage, add_action
from connectors.errors import DomainError, UnknownHostError
from runbooks import AnyRunbook

router = APIRouter(prefix="/schedules")


def _build_tiles(tx: Transaction) -> Sequence[HomeTile]:
    """Show which schedule is due next."""
    for one in rows.list_schedules(tx, states=[ScheduleState.ACTIVE], most=1):
        if one.due_at:
            label, address = f"next scheduled: {one.timing.name}", f"/schedules/{one.id}"
            return [HomeTile("", label, address, due_at=one.due_at, is_problem=False)]
    return [HomeTile("0", "scheduled", "/schedules", is_problem=False)]


PAGES = Pages(
    router,
    links=[
        PageLink("menu", "Schedules", lambda: "/schedules", "clock"),
        PageLink("freeze", "Affected schedules", lambda: "/schedules"),
    ],
    build_tiles=_build_tiles,
)
_SCHEDULE_BADGES: Mapping[ScheduleState, StatusDisplay] = {
    ScheduleState.ACTIVE: StatusDisplay(
        "Active", Tone.SUCCESS, "clock", "It starts runs at its due times."
    ),
    ScheduleState.SUSPENDED: StatusDisplay(
        "Suspended", Tone.WARNING, "ban", "It starts no runs until resumed."
    ),
    ScheduleState.LAPSED: StatusDisplay(
        "Approval expired", Tone.WARNING, "clock", "It starts no runs until it is approved again."
    ),
    ScheduleState.ENDED: StatusDisplay("Ended", Tone.NEUTRAL, "back", "It starts no more runs."),
}

_FIRE_BADGES: Mapping[FireOutcome, StatusDisplay] = {
    FireOutcome.FIRED: StatusDisplay("Fired", Tone.SUCCESS, "check", "It started a run."),
    FireOutcome.LATER: StatusDisplay(
        "Upcoming", Tone.INFO, "clock", "The run starts at its due time."
    ),
    FireOutcome.SKIPPED: StatusDisplay(
        "Skipped", Tone.NEUTRAL, "ban", "Something prevented the run."
    ),
    FireOutcome.MISSED: StatusDisplay(
        "Missed", Tone.WARNING, "question", "Keyturn was not running then."
    ),
    FireOutcome.REFUSED: StatusDisplay(
        "Refused", Tone.DANGER, "ban", "The policy no longer allows it."
    ),
}
_MAX_FIRES, _MAX_ROWS = 40, 50
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
    refusal: str
    """Why the policy would refuse its runs now; "" if it permits them."""
    policy_notes: Sequence[str]


@router.get("")
def list_schedules_page(visit: Visit, ended: str = "", page: PageQuery = 1) -> Response:
    """Show some schedules and their calendar. With `ended=all`, also those that ended long ago."""
    most, skip = _MAX_ROWS + 1, (page - 1) * _MAX_ROWS
    with visit.read_viewable() as tx:
        found, ended_count = list_recent_schedules(tx, most=most, skip=skip)
        show_all = ended == "all"
        if show_all:
            found = rows.list_schedules(tx, most=most, skip=skip)
        listed = found[:_MAX_ROWS]
        shown = [_build_shown_schedule(tx, each, visit.user) for each in listed]
        missed = rows.count_missed(tx)
        active = [one for one in listed if one.state is ScheduleState.ACTIVE]
        calendar = build_calendar(
            tx, visit.policy, zone=get_reader_zone(visit.request), schedules=active
        )
    return visit.render(
        "schedules/schedules.html",
        schedule_badge=_SCHEDULE_BADGES,
        fire_badge=_FIRE_BADGES,
        schedules=shown,
        missed=missed,
        calendar=calendar,
        days=DEFAULT_DAYS,
        page=page,
        has_next_page=len(found) > _MAX_ROWS,
        ended_count=ended_count,
        show_all=show_all,
        missed_days=rows.MISSED_DAYS,
        ended_days=rows.ENDED_DAYS,
    )


@router.get("/new")
def show_new_schedule(visit: Visit) -> Response:
    """Show the form; if it is filled in, also its problems."""
    query = visit.request.query_params
    typed = _read_typed(query)
    problems = _find_problems(visit, typed) if any(query.get(name) for name in typed) else {}
    return _render_form(visit, typed, problems)


@router.get("/timing")
def show_timing(visit: Visit) -> Response:
    """Return the part of the form that has the cron expression and its next due times.

    With `build`, the expression is that of the selected recurrence and time of day.
    """
    query = visit.request.query_params
    typed = _read_typed(query)
    recurrence = _RECURRENCES.get(query.get("every", ""))
    if recurrence is not None and query.get("build"):
        hour, minute = _parse_time_of_day(query.get("at", ""))
        typed["cron"] = recurrence[1].format(hour=hour, minute=minute)
    return _render_form(visit, typed, {}, template="schedules/schedule_timing.html")


@router.post("")
def request_schedule(visit: Visit) -> Response:
    """Plan the schedule, and redirect to its plan, which can then be requested."""
    typed = _read_typed(visit.form)
    problems = _find_problems(visit, typed)
    if problems:
        return _render_form(visit, typed, problems)
    try:
        host_pattern, requests = _parse_request(visit, typed["request"])
        run = visit.service.request_on_hosts(
            requests,
            RequestTerms(
                visit.person,
                visit.origin,
                reason=typed["reason"],
                timing=parse_timing(typed["name"], _get_settings(typed), zone="UTC"),
                plan_only=True,
            ),
            host_pattern=host_pattern,
        )
    except DomainError as error:
        return _render_form(visit, typed, {}, refusal=error)
    return RedirectResponse(f"/runs/{run.id}", 303)


@router.get("/{number}")
def show_schedule(visit: Visit, number: IdPath) -> Response:
    return _render_page(visit, number)


def _render_page(
    visit: VisitOfPage, number: int, *, refusal: DomainError | None = None
) -> Response:
    with visit.read_viewable() as tx:
        shown = _build_shown_schedule(tx, rows.get_schedule(tx, number), visit.user)
        fires = rows.list_fires(tx, number, most=_MAX_FIRES)
    return visit.render(
        "schedules/schedule.html",
        schedule_badge=_SCHEDULE_BADGES,
        fire_badge=_FIRE_BADGES,
        refusal=refusal,
        shown=shown,
        schedule=shown.schedule,
        fires=fires,
        notice=_DONE_NOTICES.get(visit.done, ""),
    )


_action = partial(add_action, router, page="/schedules/{number}", render=_render_page)


@_action("/{number}/suspend")
def suspend_schedule(visit: Visit, number: IdPath) -> str:
    visit.service.bind(ScheduleActions).suspend_schedule(
        number, person=visit.person, reason=visit.reason.strip()
    )
    return f"/schedules/{number}?done=suspended"


@_action("/{number}/resume")
def resume_schedule(visit: Visit, number: IdPath) -> str:
    visit.service.bind(ScheduleActions).resume_schedule(number, person=visit.person)
    return f"/schedules/{number}?done=resumed"


@_action("/{number}/end")
def end_schedule(visit: Visit, number: IdPath) -> str:
    visit.service.bind(ScheduleActions).end_schedule(
        number, person=visit.person, reason=visit.reason.strip()
    )
    return f"/schedules/{number}?done=ended"


@_action("/{number}/take-over")
def take_over_schedule(visit: Visit, number: IdPath) -> str:
    """Request the same schedule as its new owner, and redirect to the run to approve."""
    run = visit.service.bind(ScheduleActions).take_over_schedule(
        number, person=visit.person, origin=visit.origin, reason=visit.reason
    )
    return f"/runs/{run.id}"


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


def _find_problems(visit: VisitOfPage, typed: Mapping[str, str]) -> dict[str, str]:
    """Return every problem of the form, by field."""
    problems = find_timing_problems(typed["name"], _get_settings(typed), zone="UTC")
    if not typed["cron"]:
        problems["cron"] = "type when it runs, or select it above"
    try:
        _parse_request(visit, typed["request"])
    except RequestSyntaxError as error:
        problems["request"] = str(error)
    return problems


def _parse_request(visit: VisitOfPage, text: str) -> tuple[str, list[AnyRunbook]]:
    """Return the host pattern and the requests. Raises RequestSyntaxError."""
    words = request_form.split_words(text.removeprefix("/keyturn"))
    runbook, values = request_form.find_runbook(words)
    inventory = visit.policy.inventory
    host_pattern, requests = request_form.parse_request_for_hosts(runbook, values, inventory.tags)
    for one in requests:
        try:
            inventory[one.target]
        except UnknownHostError as error:
            raise RequestSyntaxError(str(error)) from None
    return host_pattern, requests


def _render_form(
    visit: VisitOfPage,
    typed: Mapping[str, str],
    problems: Mapping[str, str],
    *,
    template: str = "schedules/schedule_new.html",
    refusal: DomainError | None = None,
) -> Response:
    """Render the form. problems: by field."""
    reader_zone = get_reader_zone(visit.request)
    zone = typed["zone"] or reader_zone
    shown_problems = {**dict.fromkeys(typed, ""), **problems}
    cron = None
    try:
        cron = parse_cron(typed["cron"], zone) if typed["cron"] else None
    except ScheduleError as error:
        if "zone" not in problems:
            shown_problems["cron"] = str(error)
    with visit.read_viewable() as tx:
        now = tx.now
    return visit.render(
        template,
        status=422 if problems else 200,
        refusal=refusal,
        typed={**typed, "zone": zone},
        problems=shown_problems,
        cron=cron,
        upcoming=cron.list_due_times(now, count=_MAX_UPCOMING) if cron else [],
        recurrences=_RECURRENCES,
        zones=sorted({reader_zone, "UTC", *(host.zone for host in visit.policy.inventory)}),
    )


def _build_shown_schedule(tx: Transaction, schedule: Schedule, user: User) -> ShownSchedule:
    run = runs.get_run(tx, schedule.run)
    is_active = schedule.state is ScheduleState.ACTIVE
    cron_expression = schedule.timing.cron_expression
    _, ruling = get_ruling(tx, user.policy, run)
    return ShownSchedule(
        schedule,
        run,
        last_fire=next(iter(rows.list_fires(tx, schedule.id, most=1)), None),
        upcoming=cron_expression.list_due_times(tx.now, count=_MAX_UPCOMING) if is_active else [],
        can_manage=user.id in list_managers(user.policy, schedule, run),
        refusal="" if ruling.allowed else ruling.refusal_reason,
        policy_notes=ruling.policy_notes,
    )
