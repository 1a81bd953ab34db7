"""`keyturn changed`, `pending` and `views`."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from bot.cli.client import (
    ServiceClient,
    format_approved_by,
    parse_time_option,
    pass_service,
)
from bot.cli.completion import complete
from bot.cli.formatting import format_approval, format_counter_proposal, format_requester
from bot.cli.terminal import (
    format_time,
    print_result,
)


@click.command("changed")
@click.argument("when", default="")
@click.option(
    "--host",
    default="",
    help="One or more hosts: 'lb1 web*'.",
    shell_complete=complete("host"),
)
@click.option("--within", default="", help="Time before and after WHEN. Default: 1 h.")
@pass_service
def list_changes(service: ServiceClient, *, when: str, host: str, within: str) -> None:
    """Show changes around WHEN with their approvers, most relevant first.

    WHEN 1h means the last hour, which is also the default. A time without a zone is in yours.

    For example: keyturn changed 02:00 --host 'web*' --within 45m
    """
    from bot.model import times

    if not within and times.is_recent_span(when):
        when, within = "", when
    at = parse_time_option(when, times.parse_past_time)
    result = service.get("/changes", at=at, host=host, within=within or times.DEFAULT_SPAN)
    # Also where nothing was found: it says of which day a time was taken to be.
    ends = (datetime.fromisoformat(result[name]) for name in ("searched_since", "searched_until"))
    since, until = (
        format_time(min(end, datetime.now(UTC)).isoformat(), with_seconds=True) for end in ends
    )
    lines = [f"Between {since} and {until}{f' on {host}' if host else ''}:"]
    lines += [_format_event(one) for one in result["events"]] or ["No known changes."]
    if result["omitted"]:
        lines.append(f"{result['omitted']} less relevant changes not shown")
    if result["searched_since"] != result["since"]:
        lines.append("There are too many entries: what is further from that time was not searched")
    print_result(result, lines)


@click.command("pending")
@pass_service
def list_pending_runs(service: ServiceClient) -> None:
    """List what needs your action: approvals, questions, counter-proposals, plans and reviews."""
    result = service.get("/pending")
    assigned = {one["run"]: one for one in result["assigned"]}
    lines = [
        line
        for run in result["runs"]
        for line in _format_pending_run(
            run, assigned.get(run["id"]), signs=run["id"] in result["to_sign"]
        )
    ]
    for one in result["questions"]:
        run = one["run"]
        lines.append(f"{run['id']:>6}  question   {one['person']} asks: {one['text']}")
        lines.append(f"        keyturn answer {run['id']} …")
    for one in result["counter_proposals"]:
        lines += _format_counter_proposal(one)
    lines += [line for run in result["planned"] for line in _format_pending_run(run)]
    for one in result["to_review"]:
        reason = f": {one['reason']}" if one["reason"] else ""
        lines.append(f"{one['run']:>6}  review     {one['person']} {one['deed']}{reason}")
        lines.append(f"        another person must review it by {format_time(one['due_at'])}")
        lines.append(f"        keyturn review {one['run']} --findings …")
    print_result(result, lines, empty_message="Nothing pending.")


@click.command("views")
@pass_service
def list_saved_views(service: ServiceClient) -> None:
    """List your saved views: filters of the history, and their web pages."""
    found = service.get("/views")["views"]
    print_result(found, [_format_view(one) for one in found], empty_message="No saved views.")


def _format_event(event: Mapping[str, Any]) -> str:
    place = (
        f"run {event['run']}" if event["run"] else f"#{event['entry']}" if event["entry"] else ""
    )
    at = format_time(event["at"], with_seconds=True)
    where = f" on {', '.join(event['hosts'])}" if event["hosts"] else ""
    who = f", by {event['person']}" if event["person"] else ""
    outcome = f": {event['outcome']}" if event["outcome"] else ""
    return (
        f"{at}  {place:<8} {event['label']:<16} "
        f"{event['what']}{where}{who}{format_approved_by(event)}{outcome}"
    )


def _format_pending_run(
    run: Mapping[str, Any], assignment: Mapping[str, Any] | None = None, *, signs: bool = False
) -> Iterator[str]:
    yield f"{run['id']:>6}  {run['label']:<15}  {format_requester(run):<9}  {run['title']}"
    if assignment is not None:
        assigned = f"assigned to you by {assignment['assigned_by']}: {assignment['reason']}"
        yield f"        {assigned.rstrip(': ')}"
    if run["state"] == "unknown":
        yield f"        keyturn run resolve {run['id']} --result succeeded|failed --reason …"
    elif run["state"] == "planned":
        submit = f"keyturn submit {run['id']} {run['digest'][:10]}"
        yield f"        {submit}, or keyturn withdraw {run['id']}"
    else:
        other = f"withdraw {run['id']}" if signs else f"deny {run['id']} --reason …"
        yield f"        {format_approval(run)}, or keyturn {other}"


def _format_counter_proposal(one: Mapping[str, Any]) -> Iterator[str]:
    first, *more = format_counter_proposal(one["run"], one)
    yield f"{one['run']['id']:>6}  {first}"
    yield from (f"        {line}" for line in more)


def _format_view(view: Mapping[str, Any]) -> str:
    filters = ", ".join(f"{name}: {value}" for name, value in view["filters"].items())
    return f"{view['id']:>5}  {view['name']}: {filters or 'all runs'}\n       {view['page']}"
