"""`keyturn changed`, `waiting`, `compare` and the like: what the pages show, in a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from bot.cli.client import (
    ServiceClient,
    format_approved_by,
    format_time,
    json_option,
    parse_time_option,
    pass_service,
    print_result,
)
from bot.cli.context import RecordNumber

_DIFF_SIGNS = {"changed": ("-", "+"), "left": ("-", "+"), "right": ("-", "+"), "alike": (" ", " ")}


@click.command("changed")
@click.argument("when", default="")
@click.option("--host", default="", help="A host, or several: 'lb1 web*'.")
@click.option("--within", default="1h", show_default=True, help="How far around it.")
@json_option
@pass_service
def list_changes(
    service: ServiceClient, *, when: str, host: str, within: str, as_json: bool
) -> None:
    """Tell what changed around WHEN, or lately, and who allowed it; the likeliest first.

    WHEN is UTC, as times are shown here, unless a zone stands behind it.

    For example: keyturn changed 02:00 --host 'web*' --within 45m
    """
    from bot.model import times

    told = service.get(
        "/around", at=parse_time_option(when, times.parse_past_moment), host=host, within=within
    )
    lines = [_format_event(one) for one in told["events"]]
    if told["omitted"]:
        lines.append(f"left out as less likely: {told['omitted']}")
    print_result(told, lines, as_json=as_json, empty_message="nothing that Keyturn knows of")


@click.command("waiting")
@json_option
@pass_service
def list_waiting_runs(service: ServiceClient, *, as_json: bool) -> None:
    """List what waits for you: to approve or deny, to settle, and to review."""
    told = service.get("/waiting")
    lines = [line for run in told["runs"] for line in _format_waiting_run(run)]
    lines += [
        f"{one['run']:>6}  to review  {one['who']} broke the glass: {one['reason']}"
        for one in told["to_review"]
    ]
    print_result(told, lines, as_json=as_json, empty_message="nobody waits for you")


@click.command("compare")
@click.argument("numbers", nargs=-1, required=True, type=RecordNumber(), metavar="[RUN] RUN")
@json_option
@pass_service
def compare_runs(service: ServiceClient, *, numbers: tuple[int, ...], as_json: bool) -> None:
    """Compare two runs line by line; one alone with the run before that is most like it.

    For example: keyturn compare 7 12
    """
    match numbers:
        case (b,):
            told = service.get("/runs/compare", b=b)
        case (a, b):
            told = service.get("/runs/compare", a=a, b=b)
        case _:
            raise click.UsageError("two runs are compared, and no more")
    print_result(told, [*_format_comparison(told)], as_json=as_json)


@click.command("calendar")
@click.option("--days", type=click.IntRange(1, 92), default=30, show_default=True)
@json_option
@pass_service
def show_calendar(service: ServiceClient, *, days: int, as_json: bool) -> None:
    """Tell what fires in the coming days, and the freezes. Days and times are UTC."""
    told = service.get("/calendar", days=days)
    lines = [line for day in told["days"] for line in _format_day(day)]
    lines += [f"{name} fires too often to be told to the end" for name in told["cut"]]
    print_result(
        told, lines, as_json=as_json, empty_message="nothing fires, and nothing is frozen"
    )


@click.command("views")
@json_option
@pass_service
def list_saved_views(service: ServiceClient, *, as_json: bool) -> None:
    """List the filters of the history that you keep under a name, and where they are shown."""
    found = service.get("/views")["views"]
    print_result(
        found,
        [_format_view(one) for one in found],
        as_json=as_json,
        empty_message="you keep no view",
    )


COMMANDS = (list_changes, list_waiting_runs, compare_runs, show_calendar, list_saved_views)


def _format_event(event: Mapping[str, Any]) -> str:
    place = (
        f"run {event['run']}" if event["run"] else f"#{event['entry']}" if event["entry"] else ""
    )
    at = format_time(event["at"], with_seconds=True)
    where = f" on {', '.join(event['hosts'])}" if event["hosts"] else ""
    who = f", by {event['person']}" if event["person"] else ""
    came = f": {event['outcome']}" if event["outcome"] else ""
    return (
        f"{at}  {place:<8} {event['state']:<16} "
        f"{event['what']}{where}{who}{format_approved_by(event)}{came}"
    )


def _format_waiting_run(run: Mapping[str, Any]) -> Iterator[str]:
    yield f"{run['id']:>6}  {run['state']:<9}  {run['requested_by']:<9}  {run['title']}"
    if run["state"] == "unknown":
        yield f"        keyturn run resolve {run['id']} --as succeeded|failed"
    else:
        plan = f"{run['id']} {run['digest'][:10]}"
        yield f"        keyturn approve {plan}, or keyturn deny {run['id']}"


def _format_comparison(comparison: Mapping[str, Any]) -> Iterator[str]:
    left, right = comparison["left"], comparison["right"]
    if left is None:
        yield f"no earlier run of {right['runbook']} on {right['host']} is known"
        return
    yield f"- run {left['id']}: {left['title']}"
    yield f"+ run {right['id']}: {right['title']}"
    for section in comparison["sections"]:
        yield f"\n{section['title']}: {section['differing'] or 'no'} lines differ"
        for line in section["lines"]:
            yield from _format_compared_line(line)


def _format_compared_line(line: Mapping[str, Any]) -> Iterator[str]:
    if line["kind"] == "folded":
        yield f"  … {line['folded']} lines are alike"
        return
    one, other = _DIFF_SIGNS[line["kind"]]
    if line["left"] is not None:
        yield f"{one} {line['left']}"
    if line["right"] is not None and line["kind"] != "alike":
        yield f"{other} {line['right']}"


def _format_day(day: Mapping[str, Any]) -> Iterator[str]:
    for frost in day["freezes"]:
        areas = ", ".join(frost["areas"]) or "everywhere"
        begins, ends = (frost[name][11:16] for name in ("begins_at", "ends_at"))
        yield f"{day['date']}  {begins} to {ends}  frozen: {frost['name']} ({areas})"
    for one in day["fires"]:
        more = f" and {len(one['times']) - 1} more" if one["times"][1:] else ""
        out = f"; {one['skipped']} left out: {one['freeze']}" if one["skipped"] else ""
        when = f"{one['times'][0][11:16]}{more}"
        yield f"{day['date']}  {when}  {one['name']} (schedule {one['schedule']}){out}"


def _format_view(view: Mapping[str, Any]) -> str:
    filters = ", ".join(f"{name}: {value}" for name, value in view["filters"].items())
    return f"{view['id']:>5}  {view['name']}: {filters or 'everything'}\n       {view['page']}"
