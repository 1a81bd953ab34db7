"""`keyturn schedule …`: request and manage schedules; and `keyturn calendar`."""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from bot.cli.client import ServiceClient, pass_service
from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    CommandEnvironment,
    RecordNumber,
    exit_on_errors,
    exit_with_error,
    open_service,
    run_to_data,
    wants_json,
)
from bot.cli.options import (
    acting_person_option,
    json_option,
    option_with_aliases,
    pass_environment,
    reason_option,
)
from bot.cli.sections import CommandGroup
from bot.cli.terminal import (
    get_zone_name,
    print_result,
    print_table,
    to_local_time,
)

if TYPE_CHECKING:
    from bot.features.schedules.rows import Fire, Schedule
    from bot.model.run import Run

_MAX_FIRES = 10
_ZONE_OPTION = click.option(
    "--zone", default="UTC", show_default=True, help="Time zone, such as Europe/Amsterdam."
)
_REASON_OPTION = reason_option()


@click.group("schedule", cls=CommandGroup)
def schedule_commands() -> None:
    """Manage schedules."""


@schedule_commands.command("add")
@click.argument("name")
@click.option("--cron", required=True, help='Cron expression, such as "0 3 1 * *" or @daily.')
@_ZONE_OPTION
@click.option(
    "--overlap", default="skip", help="If the previous run has not ended: skip, queue or cancel."
)
@click.option("--catch-up", default="skip", help="Missed runs: skip, once, or a maximum number.")
@click.option("--spread", default="0", help="Minutes over which the hosts are spread.")
@option_with_aliases(
    "--notify", "--tell", "notify", default="changes", help="Notify on changes or always."
)
@acting_person_option
@_REASON_OPTION
@click.option("--yes", is_flag=True, help="Do not ask for confirmation of the times.")
@click.argument("words", nargs=-1, required=True, metavar="-- RUNBOOK HOST…")
@pass_environment
def request_schedule(
    environment: CommandEnvironment, *, name: str, words: tuple[str, ...], **options: Any
) -> None:
    """Request a schedule for RUNBOOK on HOST. It needs approval like any request.

    For example: keyturn schedule add "monthly scrub" --cron "0 3 1 * *" --zone Europe/Amsterdam
    --as stan -- zfs scrub start nas1 tank
    """
    from bot.model import request_form
    from bot.model.run import RequestOrigin, RequestTerms
    from bot.model.schedule import SETTING_HINTS, parse_timing

    settings = {key: str(options[key.replace("-", "_")]) for key in SETTING_HINTS}
    with open_service(environment, options["person"]) as service:
        policy = service.policies.get_policy()
        person = options["person"]
        timing = parse_timing(name, settings, zone="UTC")
        runbook, values = request_form.find_runbook(words)
        host_pattern, requests = request_form.parse_request_for_hosts(
            runbook, values, policy.inventory.tags
        )
        due_times = timing.cron_expression.format_due_times(_get_now())
        for line in (timing.cron_expression.description, *(f"  {at}" for at in due_times)):
            click.echo(line, err=wants_json())
        if not options["yes"]:
            click.confirm("Request this schedule?", abort=True, err=True)
        run = service.request_on_hosts(
            requests,
            RequestTerms(person, RequestOrigin("cli"), reason=options["reason"], timing=timing),
            host_pattern=host_pattern,
        )
    _print_schedule_run(environment, run)


@schedule_commands.command("list")
@click.option(
    "--all", "include_all", is_flag=True, help="Include those that ended over a week ago."
)
@pass_environment
def list_all_schedules(environment: CommandEnvironment, *, include_all: bool) -> None:
    """List schedules by next due time."""
    from bot.db import runs
    from bot.features.schedules import rows
    from bot.features.schedules.readings import list_recent_schedules

    with environment.open_database() as database, database.reading() as tx:
        listed, older = (rows.list_schedules(tx), 0) if include_all else list_recent_schedules(tx)
        missed = rows.count_missed(tx)
        found = [(each, runs.get_run(tx, each.run), missed.get(each.id, 0)) for each in listed]
    lines = [
        f"{each.id:>4}  {_format_next_time(each)}  {each.timing.name}: {run.request}"
        + f"; {_format_missed(count)}" * bool(count)
        for each, run, count in found
    ]
    data = [_schedule_to_data(*each) for each in found]
    print_result(data, lines, empty_message="" if older else "No schedules.", indent=2)
    if older:
        click.echo(f"{older} schedules that ended over a week ago not shown: use --all", err=True)


@schedule_commands.command("show")
@click.argument("number", type=RecordNumber())
@pass_environment
def show_schedule(environment: CommandEnvironment, *, number: int) -> None:
    """Show schedule NUMBER with its next due times and last runs.

    For example: keyturn schedule show 3
    """
    from bot.db import runs
    from bot.features.schedules import rows
    from bot.model.errors import NoSuchSchedule
    from bot.model.schedule import ScheduleState

    with environment.open_database() as database, database.reading() as tx:
        try:
            found = rows.get_schedule(tx, number)
        except NoSuchSchedule as error:
            exit_with_error(str(error), NOT_FOUND)
        run, fires, now = runs.get_run(tx, found.run), rows.list_fires(tx, number), tx.now
        missed = rows.count_missed(tx).get(number, 0)
    table = found.timing.cron_expression
    data = {
        **_schedule_to_data(found, run, missed),
        "fires": [_fire_to_data(fire) for fire in fires],
    }
    lines = [
        f"Schedule {number}: {found.timing.name}",
        f"  {run.request}",
        f"  {found.timing.description}",
        f"  owner {found.owner}; {_format_next_time(found).strip()}; requested as run {found.run}",
    ]
    if found.state is ScheduleState.ACTIVE:
        lines += ["Next:", *(f"  {at}" for at in table.format_due_times(now))]
    if fires:
        lines.append("Last:")
        lines += [
            f"  {table.format_local_time(fire.due_at)}  {_format_fire(fire)}"
            for fire in fires[:_MAX_FIRES]
        ]
    if missed:
        lines.append(f"  {_format_missed(missed)}")
    print_result(data, lines, indent=2)


@schedule_commands.command("next")
@click.argument("cron")
@_ZONE_OPTION
@click.option(
    "-n", "--limit", "count", default=5, type=click.IntRange(1, 100), help="Number of due times."
)
@json_option
def list_next_due_times(*, cron: str, zone: str, count: int) -> None:
    """Show the meaning and the next due times of CRON. Requests nothing.

    For example: keyturn schedule next "0 3 1 * *" --zone Europe/Amsterdam
    """
    from bot.model.schedule import parse_cron
    from bot.model.times import format_iso

    with exit_on_errors():
        found = parse_cron(cron, zone)
    due = found.list_due_times(_get_now(), count=count)
    data = {
        "cron": found.cron,
        "zone": found.zone,
        "description": found.description,
        "next": [format_iso(each) for each in due],
    }
    lines = [found.description, *(f"  {found.format_local_time(each)}" for each in due)]
    print_result(data, lines)


@schedule_commands.command("suspend")
@click.argument("number", type=RecordNumber())
@acting_person_option
@_REASON_OPTION
@pass_environment
def suspend_schedule(
    environment: CommandEnvironment, *, number: int, person: str, reason: str
) -> None:
    """Suspend schedule NUMBER until it is resumed.

    For example: keyturn schedule suspend 3 --as stan --reason "the pool is being moved"
    """
    from bot.features.schedules.actions import ScheduleActions

    with open_service(environment, person) as service:
        found = service.bind(ScheduleActions).suspend_schedule(
            number, person=person, reason=reason
        )
    _print_schedule_state(found, f"Suspended schedule {number}.")


@schedule_commands.command("resume")
@click.argument("number", type=RecordNumber())
@acting_person_option
@pass_environment
def resume_schedule(environment: CommandEnvironment, *, number: int, person: str) -> None:
    """Resume schedule NUMBER from its next due time.

    For example: keyturn schedule resume 3 --as stan
    """
    from bot.features.schedules.actions import ScheduleActions

    with open_service(environment, person) as service:
        found = service.bind(ScheduleActions).resume_schedule(number, person=person)
    _print_schedule_state(found, f"Resumed schedule {number}.")


@schedule_commands.command("end")
@click.argument("number", type=RecordNumber())
@acting_person_option
@_REASON_OPTION
@pass_environment
def end_schedule(
    environment: CommandEnvironment, *, number: int, person: str, reason: str
) -> None:
    """End schedule NUMBER permanently.

    For example: keyturn schedule end 3 --as stan
    """
    from bot.features.schedules.actions import ScheduleActions

    with open_service(environment, person) as service:
        found = service.bind(ScheduleActions).end_schedule(number, person=person, reason=reason)
    _print_schedule_state(found, f"Ended schedule {number}.")


@schedule_commands.command("take")
@click.argument("number", type=RecordNumber())
@acting_person_option
@_REASON_OPTION
@pass_environment
def take_over_schedule(
    environment: CommandEnvironment, *, number: int, person: str, reason: str
) -> None:
    """Request ownership of schedule NUMBER. Once approved, the old schedule ends.

    For example: keyturn schedule take 3 --as olga --reason "Stan is on leave"
    """
    from bot.features.schedules.actions import ScheduleActions
    from bot.model.run import RequestOrigin

    with open_service(environment, person) as service:
        run = service.bind(ScheduleActions).take_over_schedule(
            number, person=person, origin=RequestOrigin("cli"), reason=reason
        )
    _print_schedule_run(environment, run)


def _print_schedule_state(schedule: "Schedule", line: str) -> None:
    print_result(_schedule_state_to_data(schedule), [line])


def _print_schedule_run(environment: CommandEnvironment, run: "Run") -> None:
    data = run_to_data(environment, run)
    if wants_json() or not run.is_ended:
        page = f": {data['page']}" if data["page"] else ""
        print_result(data, [f"Requested as run {run.id}{page}"])
    if run.is_ended:
        exit_with_error(f"{run.title}: {run.summary}", FAILED)


def _format_next_time(schedule: "Schedule") -> str:
    from bot.model.schedule import ScheduleState

    if schedule.state is not ScheduleState.ACTIVE:
        return f"{schedule.state:<27}"
    due_times = schedule.timing.cron_expression.format_due_times(schedule.decided_until, count=1)
    return f"{due_times[0] if due_times else 'no due time':<27}"


def _format_fire(fire: "Fire") -> str:
    parts = [f"on {fire.host}" * bool(fire.host), str(fire.outcome)]
    parts += [f"run {fire.run}" * bool(fire.run), fire.reason]
    return ", ".join(part for part in parts if part)


def _format_missed(count: int) -> str:
    from bot.features.schedules.rows import MISSED_DAYS

    return f"{count} missed in {MISSED_DAYS} days"


def _schedule_to_data(schedule: "Schedule", run: "Run", missed_count: int) -> Mapping[str, Any]:
    from bot.model.times import format_iso

    table = schedule.timing.cron_expression
    return {
        **_schedule_state_to_data(schedule),
        "request": run.request,
        "hosts": list(run.hosts or (run.host,)),
        "cron": table.cron,
        "zone": table.zone,
        "description": schedule.timing.description,
        "next": [format_iso(due) for due in table.list_due_times(_get_now(), count=5)]
        if schedule.due_at
        else [],
        "missed": missed_count,
        "run": schedule.run,
    }


def _schedule_state_to_data(schedule: "Schedule") -> Mapping[str, Any]:
    return {
        "schedule": schedule.id,
        "name": schedule.timing.name,
        "owner": schedule.owner,
        "state": schedule.state.value,
        "state_reason": schedule.reason,
    }


def _fire_to_data(fire: "Fire") -> Mapping[str, Any]:
    from bot.model.times import format_iso

    return {
        "due_at": format_iso(fire.due_at),
        "host": fire.host,
        "outcome": fire.outcome.value,
        "run": fire.run,
        "reason": fire.reason,
    }


def _get_now() -> int:
    return time.time_ns() // 1000


@click.command("calendar")
@click.option(
    "--days", type=click.IntRange(1, 92), default=30, show_default=True, help="Days to show."
)
@pass_service
def show_calendar(service: ServiceClient, *, days: int) -> None:
    """List due times and freezes of the coming days."""
    result = service.get("/calendar", days=days, zone=get_zone_name())
    rows = [row for day in result["days"] for row in _build_calendar_rows(day)]
    print_table(
        result, ("DATE", "TIME", "WHAT"), rows, empty_message="No due times and no freezes."
    )


def _build_calendar_rows(day: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for freeze in day["freezes"]:
        where = ", ".join([*freeze["areas"], *freeze["hosts"]]) or "all areas"
        begin, end = (_format_time_of_day(freeze[name]) for name in ("begins_at", "ends_at"))
        when = "all day" if begin == end else f"{begin} to {end}"
        yield day["date"], when, f"freeze: {freeze['name']} ({where})"
    for one in day["fires"]:
        skipped = f"; {one['skipped']} skipped: {one['freeze']}" if one["skipped"] else ""
        what = f"{one['name']} (schedule {one['schedule']}){skipped}"
        yield day["date"], _format_due_times(one), what


def _format_time_of_day(iso_time: str) -> str:
    return f"{to_local_time(iso_time):%H:%M}"


def _format_due_times(fires: Mapping[str, Any]) -> str:
    """Return `03:00`, `03:00, 15:00`, `00:00, every 5 min, 288 times` or `03:00 and 5 more`."""
    from bot.model.times import format_span

    first, *others = map(_format_time_of_day, fires["times"])
    if len(others) < 2:
        return ", ".join([first, *others])
    if fires["interval_seconds"]:
        interval = format_span(fires["interval_seconds"] * 1_000_000)
        return f"{first}, every {interval}, {fires['count']} times"
    return f"{first} and {fires['count'] - 1} more"
