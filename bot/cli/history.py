"""`keyturn changed`, `waiting`, `compare` and the like: what the pages show, in a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from bot.cli.client import Service, allowed_by, as_json, at, at_service, moment, print_result
from bot.cli.context import Number

_SIGNS = {"changed": ("-", "+"), "left": ("-", "+"), "right": ("-", "+"), "alike": (" ", " ")}


@click.command("changed")
@click.argument("when", default="")
@click.option("--host", default="", help="A host, or several: 'lb1 web*'.")
@click.option("--within", default="1h", show_default=True, help="How far around it.")
@as_json
@at_service
def changed(reached: Service, *, when: str, host: str, within: str, as_json: bool) -> None:
    """Tell what changed around WHEN, or lately, and who allowed it; the likeliest first.

    WHEN is UTC, as times are shown here, unless a zone stands behind it.

    For example: keyturn changed 02:00 --host 'web*' --within 45m
    """
    from bot.model import times

    told = reached.get("/around", at=at(when, times.parse_past_moment), host=host, within=within)
    lines = [_happening(one) for one in told["happenings"]]
    if told["left_out"]:
        lines.append(f"left out as less likely: {told['left_out']}")
    print_result(told, lines, as_json=as_json, empty="nothing that Keyturn knows of")


@click.command("waiting")
@as_json
@at_service
def waiting(reached: Service, *, as_json: bool) -> None:
    """List what waits for you: to approve or deny, to settle, and to review."""
    told = reached.get("/waiting")
    lines = [line for run in told["runs"] for line in _waits(run)]
    lines += [
        f"{one['run']:>6}  to review  {one['who']} broke the glass: {one['reason']}"
        for one in told["to_review"]
    ]
    print_result(told, lines, as_json=as_json, empty="nobody waits for you")


@click.command("compare")
@click.argument("numbers", nargs=-1, required=True, type=Number(), metavar="[RUN] RUN")
@as_json
@at_service
def compare(reached: Service, *, numbers: tuple[int, ...], as_json: bool) -> None:
    """Compare two runs line by line; one alone with the run before that is most like it.

    For example: keyturn compare 7 12
    """
    match numbers:
        case (b,):
            told = reached.get("/runs/compare", b=b)
        case (a, b):
            told = reached.get("/runs/compare", a=a, b=b)
        case _:
            raise click.UsageError("two runs are compared, and no more")
    print_result(told, [*_compared(told)], as_json=as_json)


@click.command("calendar")
@click.option("--days", type=click.IntRange(1, 92), default=30, show_default=True)
@as_json
@at_service
def calendar(reached: Service, *, days: int, as_json: bool) -> None:
    """Tell what fires in the coming days, and the freezes. Days and times are UTC."""
    told = reached.get("/calendar", days=days)
    lines = [line for day in told["days"] for line in _day(day)]
    lines += [f"{name} fires too often to be told to the end" for name in told["cut"]]
    print_result(told, lines, as_json=as_json, empty="nothing fires, and nothing is frozen")


@click.command("views")
@as_json
@at_service
def views(reached: Service, *, as_json: bool) -> None:
    """List the filters of the history that you keep under a name, and where they are shown."""
    found = reached.get("/views")["views"]
    print_result(found, [_view(one) for one in found], as_json=as_json, empty="you keep no view")


COMMANDS = (changed, waiting, compare, calendar, views)


def _happening(one: Mapping[str, Any]) -> str:
    place = f"run {one['run']}" if one["run"] else f"#{one['entry']}" if one["entry"] else ""
    at = moment(one["at"], seconds=True)
    where = f" on {', '.join(one['hosts'])}" if one["hosts"] else ""
    who = f", by {one['person']}" if one["person"] else ""
    came = f": {one['outcome']}" if one["outcome"] else ""
    return f"{at}  {place:<8} {one['state']:<16} {one['what']}{where}{who}{allowed_by(one)}{came}"


def _waits(run: Mapping[str, Any]) -> Iterator[str]:
    yield f"{run['id']:>6}  {run['state']:<9}  {run['asked_by']:<9}  {run['title']}"
    if run["state"] == "unknown":
        yield f"        keyturn run resolve {run['id']} --as succeeded|failed"
    else:
        plan = f"{run['id']} {run['digest'][:10]}"
        yield f"        keyturn approve {plan}, or keyturn deny {run['id']}"


def _compared(told: Mapping[str, Any]) -> Iterator[str]:
    left, right = told["left"], told["right"]
    if left is None:
        yield f"no earlier run of {right['runbook']} on {right['host']} is known"
        return
    yield f"- run {left['id']}: {left['title']}"
    yield f"+ run {right['id']}: {right['title']}"
    for section in told["sections"]:
        yield f"\n{section['title']}: {section['differing'] or 'no'} lines differ"
        for line in section["lines"]:
            yield from _line(line)


def _line(line: Mapping[str, Any]) -> Iterator[str]:
    if line["kind"] == "folded":
        yield f"  … {line['folded']} lines are alike"
        return
    one, other = _SIGNS[line["kind"]]
    if line["left"] is not None:
        yield f"{one} {line['left']}"
    if line["right"] is not None and line["kind"] != "alike":
        yield f"{other} {line['right']}"


def _day(day: Mapping[str, Any]) -> Iterator[str]:
    for frost in day["freezes"]:
        areas = ", ".join(frost["areas"]) or "everywhere"
        begins, ends = (frost[name][11:16] for name in ("begins_at", "ends_at"))
        yield f"{day['date']}  {begins} to {ends}  frozen: {frost['name']} ({areas})"
    for one in day["fires"]:
        more = f" and {len(one['moments']) - 1} more" if one["moments"][1:] else ""
        out = f"; {one['left_out']} left out: {one['freeze']}" if one["left_out"] else ""
        when = f"{one['moments'][0][11:16]}{more}"
        yield f"{day['date']}  {when}  {one['name']} (schedule {one['schedule']}){out}"


def _view(view: Mapping[str, Any]) -> str:
    filters = ", ".join(f"{name}: {value}" for name, value in view["filters"].items())
    return f"{view['id']:>5}  {view['name']}: {filters or 'everything'}\n       {view['page']}"
