"""`keyturn schedule …`: ask for what fires by the clock, and keep it."""

import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from bot.cli import offline
from bot.cli.client import as_json, print_result
from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    Number,
    Place,
    at_place,
    considered,
    plainly,
    stop,
)
from bot.cli.sections import Family

if TYPE_CHECKING:
    from bot.db.database import Database
    from bot.db.schedules import Fire, Schedule
    from bot.model.run import Run
    from bot.service import Workflow
    from bot.workflow.context import Policies

_NEWEST = 10
_AS = click.option("--as", "person", required=True, help="The person of the policy who does it.")
_ZONE = click.option("--zone", default="UTC", help="Such as Europe/Amsterdam.  [default: UTC]")
_WHY = click.option("--why", default="", help="What the change log shall say about it.")


@dataclass(frozen=True)
class _Office:
    """The workflow on the database alone: a service that runs takes up what is asked here."""

    workflow: "Workflow"
    database: "Database"
    policies: "Policies"


@click.group(cls=Family)
def schedule() -> None:
    """Look after what fires by the clock."""


@schedule.command("add")
@click.argument("name")
@click.option("--cron", required=True, help='Such as "0 3 1 * *" or @daily.')
@_ZONE
@click.option(
    "--overlap", default="skip", help="While the last run is not over: skip, queue or cancel."
)
@click.option(
    "--catch-up", default="skip", help="What was missed: skip, once, or how many at most."
)
@click.option("--spread", default="0", help="Minutes over which the hosts are spread.")
@click.option("--tell", default="changes", help="Tell the result on changes or always.")
@_AS
@_WHY
@click.option("--yes", is_flag=True, help="Do not ask whether these are the right moments.")
@click.argument("words", nargs=-1, required=True, metavar="-- WORDS HOST…")
@as_json
@at_place
def add(place: Place, *, name: str, words: tuple[str, ...], as_json: bool, **said: Any) -> None:
    """Ask for WORDS to be done again and again, as PERSON; it is approved like any request.

    For example: keyturn schedule add "monthly scrub" --cron "0 3 1 * *" --zone Europe/Amsterdam
    --as stan -- zfs scrub start nas1 tank
    """
    from bot.model import request_form
    from bot.model.run import Origin
    from bot.model.schedule import SETTINGS, parse_timing

    settings = {key: str(said[key.replace("-", "_")]) for key in SETTINGS}
    with _working(place) as office:
        policy = office.policies.current()
        person = _person(office, said["person"])
        wanted = parse_timing(name, settings, zone="UTC")
        runbook, values = request_form.find_runbook(words)
        spelled, requests = request_form.parse_for_hosts(runbook, values, policy.inventory.tags)
        coming = wanted.timetable.spoken(_now())
        click.echo(_moments(wanted.timetable.words, coming), err=as_json)
        if not said["yes"]:
            click.confirm("Ask for it?", abort=True, err=True)
        run = office.workflow.schedules.ask(
            requests,
            spelled=spelled,
            person=person,
            origin=Origin("cli"),
            reason=said["why"],
            timing=wanted,
        )
    _say(place, run, as_json=as_json)


@schedule.command("list")
@click.option("--all", "whole", is_flag=True, help="What ended more than a week ago, too.")
@as_json
@at_place
def listing(place: Place, *, whole: bool, as_json: bool) -> None:
    """List the schedules, those that fire first."""
    from bot.db import runs, schedules

    with _reading(place) as database, database.reading() as tx:
        listed, older = (
            (schedules.list_schedules(tx), 0) if whole else schedules.list_recent_schedules(tx)
        )
        missed = schedules.count_missed(tx)
        found = [(each, runs.get_run(tx, each.run), missed.get(each.id, 0)) for each in listed]
    if as_json:
        click.echo(json.dumps([_data(*each) for each in found], indent=2, ensure_ascii=False))
    elif not found and not older:
        click.echo("there is no schedule yet: `keyturn schedule add` asks for the first")
    for each, run, count in found if not as_json else ():
        said = f"{each.id:>4}  {_standing(each)}  {each.timing.name}: {run.request}"
        click.echo(said + f"; {_missed(count)}" * bool(count))
    if older:
        click.echo(f"{older} that ended more than a week ago: --all lists them, too", err=True)


@schedule.command("show")
@click.argument("number", type=Number())
@as_json
@at_place
def show(place: Place, *, number: int, as_json: bool) -> None:
    """Tell all about one schedule: its next moments, and what became of the last ones."""
    from bot.db import runs, schedules
    from bot.db.schedules import NoSuchSchedule, ScheduleState

    with _reading(place) as database, database.reading() as tx:
        try:
            found = schedules.get_schedule(tx, number)
        except NoSuchSchedule as missing:
            stop(str(missing), NOT_FOUND)
        run, fires, now = runs.get_run(tx, found.run), schedules.list_fires(tx, number), tx.now
        missed = schedules.count_missed(tx).get(number, 0)
    table = found.timing.timetable
    if as_json:
        data = {**_data(found, run, missed), "fires": [_fire(fire) for fire in fires]}
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    click.echo(f"Schedule {number}: {found.timing.name}\n  {run.request}\n  {found.timing.words}")
    click.echo(f"  owner {found.owner}; {_standing(found).strip()}; asked for as run {found.run}")
    if found.standing is ScheduleState.ACTIVE:
        click.echo(_moments("Next:", table.spoken(now)))
    if fires:
        lines = [f"{table.local(fire.due)}  {_became(fire)}" for fire in fires[:_NEWEST]]
        click.echo(_moments("Last:", lines))
    if missed:
        click.echo(f"  {_missed(missed)}")


@schedule.command("next")
@click.argument("cron")
@_ZONE
@click.option("-n", "count", default=5, type=click.IntRange(1, 100), help="How many.")
@as_json
def coming(*, cron: str, zone: str, count: int, as_json: bool) -> None:
    """Say what CRON means and when it comes next; nothing is asked for."""
    from bot.model.schedule import ScheduleError, parse_cron
    from bot.model.times import format_iso

    try:
        found = parse_cron(cron, zone)
    except ScheduleError as bad:
        stop(str(bad), NOT_UNDERSTOOD)
    due = found.next(_now(), count=count)
    told = {
        "cron": found.cron,
        "zone": found.zone,
        "in_words": found.words,
        "next": [format_iso(each) for each in due],
    }
    lines = _moments(found.words, [found.local(each) for each in due]).splitlines()
    print_result(told, lines, as_json=as_json)


@schedule.command("suspend")
@click.argument("number", type=Number())
@_AS
@_WHY
@as_json
@at_place
def suspend(place: Place, *, number: int, person: str, why: str, as_json: bool) -> None:
    """Let schedule NUMBER fire no more until it is resumed."""
    with _working(place) as office:
        known = _person(office, person)
        found = office.workflow.schedules.suspend(number, person=known, why=why)
    print_result(_kept(found), [f"schedule {number} is suspended"], as_json=as_json)


@schedule.command("resume")
@click.argument("number", type=Number())
@_AS
@as_json
@at_place
def resume(place: Place, *, number: int, person: str, as_json: bool) -> None:
    """Let schedule NUMBER fire again, from its next moment on."""
    with _working(place) as office:
        found = office.workflow.schedules.resume(number, person=_person(office, person))
    print_result(_kept(found), [f"schedule {number} fires again"], as_json=as_json)


@schedule.command("end")
@click.argument("number", type=Number())
@_AS
@_WHY
@as_json
@at_place
def end(place: Place, *, number: int, person: str, why: str, as_json: bool) -> None:
    """Let schedule NUMBER fire no more, for good."""
    with _working(place) as office:
        found = office.workflow.schedules.end(number, person=_person(office, person), why=why)
    print_result(_kept(found), [f"schedule {number} has ended"], as_json=as_json)


@schedule.command("take")
@click.argument("number", type=Number())
@_AS
@_WHY
@as_json
@at_place
def take(place: Place, *, number: int, person: str, why: str, as_json: bool) -> None:
    """Ask for schedule NUMBER as one's own; once that is approved the old one ends."""
    from bot.model.run import Origin

    with _working(place) as office:
        person = _person(office, person)
        run = office.workflow.schedules.take(
            number, person=person, origin=Origin("cli"), reason=why
        )
    _say(place, run, as_json=as_json)


@contextmanager
def _working(place: Place) -> "Generator[_Office]":
    """Open the workflow. A refusal is one line."""
    from bot.service import Workflow

    with plainly(), place.database() as database, considered():
        parts = offline.parts(place, database)
        yield _Office(Workflow(parts), database, parts.policies)


@contextmanager
def _reading(place: Place) -> "Generator[Database]":
    with plainly(), place.database() as database:
        yield database


def _person(office: _Office, word: str) -> str:
    known = office.policies.current().person(word)
    if known is None:
        stop(f"{word} is not among the people of the policy", NOT_FOUND)
    return known.id


def _say(place: Place, run: "Run", *, as_json: bool) -> None:
    told = offline.run_as_data(place, run)
    if as_json or not run.over:
        where = f": {told['page']}" if told["page"] else ""
        print_result(told, [f"asked for as run {run.id}{where}"], as_json=as_json)
    if run.over:
        stop(f"{run.title}: {run.summary}", FAILED)


def _moments(title: str, moments: list[str]) -> str:
    return "\n".join([title, *(f"  {moment}" for moment in moments)])


def _standing(found: "Schedule") -> str:
    from bot.db.schedules import ScheduleState

    if found.standing is not ScheduleState.ACTIVE:
        return f"{found.standing:<27}"
    coming = found.timing.timetable.spoken(found.decided, count=1)
    return f"{coming[0] if coming else 'never again':<27}"


def _became(fire: "Fire") -> str:
    parts = [f"on {fire.host}" * bool(fire.host), str(fire.outcome)]
    parts += [f"run {fire.run}" * bool(fire.run), fire.why]
    return ", ".join(part for part in parts if part)


def _missed(count: int) -> str:
    from bot.db.schedules import MISSED_DAYS

    return f"{count} missed in {MISSED_DAYS} days"


def _data(found: "Schedule", run: "Run", missed: int) -> Mapping[str, Any]:
    from bot.model.times import format_iso

    table = found.timing.timetable
    return {
        **_kept(found),
        "request": run.request,
        "hosts": list(run.hosts or (run.host,)),
        "cron": table.cron,
        "zone": table.zone,
        "in_words": found.timing.words,
        "next": [format_iso(due) for due in table.next(_now(), count=5)] if found.due else [],
        "missed": missed,
        "asked_for_as": found.run,
    }


def _kept(found: "Schedule") -> Mapping[str, Any]:
    return {
        "schedule": found.id,
        "name": found.timing.name,
        "owner": found.owner,
        "standing": found.standing.value,
        "why": found.why,
    }


def _fire(fire: "Fire") -> Mapping[str, Any]:
    from bot.model.times import format_iso

    return {
        "due": format_iso(fire.due),
        "host": fire.host,
        "outcome": fire.outcome.value,
        "run": fire.run,
        "why": fire.why,
    }


def _now() -> int:
    return time.time_ns() // 1000
