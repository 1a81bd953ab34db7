"""`keyturn schedule …`: ask for what fires by the clock, and keep it."""

import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from bot.cli import offline
from bot.cli.client import json_option, print_result
from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    CommandEnvironment,
    RecordNumber,
    exit_on_errors,
    exit_on_refusals,
    exit_with_error,
    pass_environment,
)
from bot.cli.sections import CommandGroup

if TYPE_CHECKING:
    from bot.db.database import Database
    from bot.db.schedules import Fire, Schedule
    from bot.model.run import Run
    from bot.policy import PolicySource
    from bot.service import Workflow

_MAX_FIRES = 10
_AS_OPTION = click.option(
    "--as", "person", required=True, help="The person of the policy who does it."
)
_ZONE_OPTION = click.option(
    "--zone", default="UTC", help="Such as Europe/Amsterdam.  [default: UTC]"
)
_WHY_OPTION = click.option("--why", default="", help="What the change log shall say about it.")


@dataclass(frozen=True)
class _OfflineWorkflow:
    """The workflow on the database alone: a service that runs takes up what is asked here."""

    workflow: "Workflow"
    database: "Database"
    policies: "PolicySource"


@click.group("schedule", cls=CommandGroup)
def schedule_commands() -> None:
    """Look after what fires by the clock."""


@schedule_commands.command("add")
@click.argument("name")
@click.option("--cron", required=True, help='Such as "0 3 1 * *" or @daily.')
@_ZONE_OPTION
@click.option(
    "--overlap", default="skip", help="While the last run is not over: skip, queue or cancel."
)
@click.option(
    "--catch-up", default="skip", help="What was missed: skip, once, or how many at most."
)
@click.option("--spread", default="0", help="Minutes over which the hosts are spread.")
@click.option("--tell", default="changes", help="Tell the result on changes or always.")
@_AS_OPTION
@_WHY_OPTION
@click.option("--yes", is_flag=True, help="Do not ask whether these are the right moments.")
@click.argument("words", nargs=-1, required=True, metavar="-- WORDS HOST…")
@json_option
@pass_environment
def request_schedule(
    environment: CommandEnvironment,
    *,
    name: str,
    words: tuple[str, ...],
    as_json: bool,
    **said: Any,
) -> None:
    """Ask for WORDS to be done again and again, as PERSON; it is approved like any request.

    For example: keyturn schedule add "monthly scrub" --cron "0 3 1 * *" --zone Europe/Amsterdam
    --as stan -- zfs scrub start nas1 tank
    """
    from bot.model import request_form
    from bot.model.run import RequestOrigin
    from bot.model.schedule import SETTING_HINTS, parse_timing

    settings = {key: str(said[key.replace("-", "_")]) for key in SETTING_HINTS}
    with _open_workflow(environment) as office:
        policy = office.policies.get_policy()
        person = _find_person_id(office, said["person"])
        wanted = parse_timing(name, settings, zone="UTC")
        runbook, values = request_form.find_runbook(words)
        spelled, requests = request_form.parse_request_for_hosts(
            runbook, values, policy.inventory.tags
        )
        coming = wanted.cron_expression.format_due_times(_get_now())
        click.echo(_format_list(wanted.cron_expression.description, coming), err=as_json)
        if not said["yes"]:
            click.confirm("Ask for it?", abort=True, err=True)
        run = office.workflow.schedules.request_schedule(
            requests,
            host_pattern=spelled,
            person=person,
            origin=RequestOrigin("cli"),
            reason=said["why"],
            timing=wanted,
        )
    _print_founding_run(environment, run, as_json=as_json)


@schedule_commands.command("list")
@click.option("--all", "whole", is_flag=True, help="What ended more than a week ago, too.")
@json_option
@pass_environment
def list_all_schedules(environment: CommandEnvironment, *, whole: bool, as_json: bool) -> None:
    """List the schedules, those that fire first."""
    from bot.db import runs, schedules

    with _open_database(environment) as database, database.reading() as tx:
        listed, older = (
            (schedules.list_schedules(tx), 0) if whole else schedules.list_recent_schedules(tx)
        )
        missed = schedules.count_missed(tx)
        found = [(each, runs.get_run(tx, each.run), missed.get(each.id, 0)) for each in listed]
    if as_json:
        click.echo(
            json.dumps([_schedule_to_data(*each) for each in found], indent=2, ensure_ascii=False)
        )
    elif not found and not older:
        click.echo("there is no schedule yet: `keyturn schedule add` asks for the first")
    for each, run, count in found if not as_json else ():
        said = f"{each.id:>4}  {_format_next_time(each)}  {each.timing.name}: {run.request}"
        click.echo(said + f"; {_format_missed(count)}" * bool(count))
    if older:
        click.echo(f"{older} that ended more than a week ago: --all lists them, too", err=True)


@schedule_commands.command("show")
@click.argument("number", type=RecordNumber())
@json_option
@pass_environment
def show_schedule(environment: CommandEnvironment, *, number: int, as_json: bool) -> None:
    """Tell all about one schedule: its next moments, and what became of the last ones."""
    from bot.db import runs, schedules
    from bot.db.schedules import NoSuchSchedule, ScheduleState

    with _open_database(environment) as database, database.reading() as tx:
        try:
            found = schedules.get_schedule(tx, number)
        except NoSuchSchedule as missing:
            exit_with_error(str(missing), NOT_FOUND)
        run, fires, now = runs.get_run(tx, found.run), schedules.list_fires(tx, number), tx.now
        missed = schedules.count_missed(tx).get(number, 0)
    table = found.timing.cron_expression
    if as_json:
        data = {
            **_schedule_to_data(found, run, missed),
            "fires": [_fire_to_data(fire) for fire in fires],
        }
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    click.echo(
        f"Schedule {number}: {found.timing.name}\n  {run.request}\n  {found.timing.description}"
    )
    click.echo(
        f"  owner {found.owner}; {_format_next_time(found).strip()}; asked for as run {found.run}"
    )
    if found.state is ScheduleState.ACTIVE:
        click.echo(_format_list("Next:", table.format_due_times(now)))
    if fires:
        lines = [
            f"{table.format_local_time(fire.due_at)}  {_format_fire(fire)}"
            for fire in fires[:_MAX_FIRES]
        ]
        click.echo(_format_list("Last:", lines))
    if missed:
        click.echo(f"  {_format_missed(missed)}")


@schedule_commands.command("next")
@click.argument("cron")
@_ZONE_OPTION
@click.option("-n", "count", default=5, type=click.IntRange(1, 100), help="How many.")
@json_option
def list_next_due_times(*, cron: str, zone: str, count: int, as_json: bool) -> None:
    """Say what CRON means and when it comes next; nothing is asked for."""
    from bot.model.schedule import ScheduleError, parse_cron
    from bot.model.times import format_iso

    try:
        found = parse_cron(cron, zone)
    except ScheduleError as bad:
        exit_with_error(str(bad), NOT_UNDERSTOOD)
    due = found.list_due_times(_get_now(), count=count)
    told = {
        "cron": found.cron,
        "zone": found.zone,
        "in_words": found.description,
        "next": [format_iso(each) for each in due],
    }
    lines = _format_list(
        found.description, [found.format_local_time(each) for each in due]
    ).splitlines()
    print_result(told, lines, as_json=as_json)


@schedule_commands.command("suspend")
@click.argument("number", type=RecordNumber())
@_AS_OPTION
@_WHY_OPTION
@json_option
@pass_environment
def suspend_schedule(
    environment: CommandEnvironment, *, number: int, person: str, why: str, as_json: bool
) -> None:
    """Let schedule NUMBER fire no more until it is resumed."""
    with _open_workflow(environment) as office:
        known = _find_person_id(office, person)
        found = office.workflow.schedules.suspend_schedule(number, person=known, reason=why)
    print_result(
        _schedule_state_to_data(found), [f"schedule {number} is suspended"], as_json=as_json
    )


@schedule_commands.command("resume")
@click.argument("number", type=RecordNumber())
@_AS_OPTION
@json_option
@pass_environment
def resume_schedule(
    environment: CommandEnvironment, *, number: int, person: str, as_json: bool
) -> None:
    """Let schedule NUMBER fire again, from its next moment on."""
    with _open_workflow(environment) as office:
        found = office.workflow.schedules.resume_schedule(
            number, person=_find_person_id(office, person)
        )
    print_result(
        _schedule_state_to_data(found), [f"schedule {number} fires again"], as_json=as_json
    )


@schedule_commands.command("end")
@click.argument("number", type=RecordNumber())
@_AS_OPTION
@_WHY_OPTION
@json_option
@pass_environment
def end_schedule(
    environment: CommandEnvironment, *, number: int, person: str, why: str, as_json: bool
) -> None:
    """Let schedule NUMBER fire no more, for good."""
    with _open_workflow(environment) as office:
        found = office.workflow.schedules.end_schedule(
            number, person=_find_person_id(office, person), reason=why
        )
    print_result(_schedule_state_to_data(found), [f"schedule {number} has ended"], as_json=as_json)


@schedule_commands.command("take")
@click.argument("number", type=RecordNumber())
@_AS_OPTION
@_WHY_OPTION
@json_option
@pass_environment
def take_over_schedule(
    environment: CommandEnvironment, *, number: int, person: str, why: str, as_json: bool
) -> None:
    """Ask for schedule NUMBER as one's own; once that is approved the old one ends."""
    from bot.model.run import RequestOrigin

    with _open_workflow(environment) as office:
        person = _find_person_id(office, person)
        run = office.workflow.schedules.take_over_schedule(
            number, person=person, origin=RequestOrigin("cli"), reason=why
        )
    _print_founding_run(environment, run, as_json=as_json)


@contextmanager
def _open_workflow(environment: CommandEnvironment) -> "Generator[_OfflineWorkflow]":
    """Open the workflow. A refusal is one line."""
    from bot.service import Workflow

    with exit_on_errors(), environment.open_database() as database, exit_on_refusals():
        parts = offline.build_workflow_context(environment, database)
        yield _OfflineWorkflow(Workflow(parts), database, parts.policies)


@contextmanager
def _open_database(environment: CommandEnvironment) -> "Generator[Database]":
    with exit_on_errors(), environment.open_database() as database:
        yield database


def _find_person_id(offline_workflow: _OfflineWorkflow, typed: str) -> str:
    known = offline_workflow.policies.get_policy().find_person(typed)
    if known is None:
        exit_with_error(f"{typed} is not among the people of the policy", NOT_FOUND)
    return known.id


def _print_founding_run(environment: CommandEnvironment, run: "Run", *, as_json: bool) -> None:
    told = offline.run_to_data(environment, run)
    if as_json or not run.is_ended:
        where = f": {told['page']}" if told["page"] else ""
        print_result(told, [f"asked for as run {run.id}{where}"], as_json=as_json)
    if run.is_ended:
        exit_with_error(f"{run.title}: {run.summary}", FAILED)


def _format_list(title: str, times: list[str]) -> str:
    return "\n".join([title, *(f"  {moment}" for moment in times)])


def _format_next_time(schedule: "Schedule") -> str:
    from bot.db.schedules import ScheduleState

    if schedule.state is not ScheduleState.ACTIVE:
        return f"{schedule.state:<27}"
    coming = schedule.timing.cron_expression.format_due_times(schedule.decided_until, count=1)
    return f"{coming[0] if coming else 'never again':<27}"


def _format_fire(fire: "Fire") -> str:
    parts = [f"on {fire.host}" * bool(fire.host), str(fire.outcome)]
    parts += [f"run {fire.run}" * bool(fire.run), fire.reason]
    return ", ".join(part for part in parts if part)


def _format_missed(count: int) -> str:
    from bot.db.schedules import MISSED_DAYS

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
        "asked_for_as": schedule.run,
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
