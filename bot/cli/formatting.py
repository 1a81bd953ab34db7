"""An account of a run as people read it in a terminal. Pure."""

from collections.abc import Mapping
from typing import Any

from bot.cli.client import format_state, moment

_NEWEST_LINES = 20


def in_full(run: Mapping[str, Any], *, most: int | None = None) -> str:
    """Return a run as people read it: who asked and decided, the plan, and what came of it.

    most: rows of the report's table; None for all.
    """
    lines = [
        f"run {run['id']}: {run['title']}",
        f"  {format_state(run)}. {run['summary']}".rstrip(),
    ]
    where = f"{run['asked_by']} on {', '.join(run['hosts'])}"
    lines.append(f"  asked by {where}{_when_and_why(run['asked_at'], run['reason'])}")
    lines += [_vote(vote) for vote in run["votes"]]
    if run["state"] == "waiting":
        lines += _decision(run)
    lines += _schedule(run)
    plan = run["plan"]
    if plan is not None:
        lines.append(f"  {plan['because']}")
        lines += [f"  ! {note}" for note in plan["notes"]]
    for step in plan["steps"] if plan else ():
        became = f" [{step['state']}]" if step["state"] else ""
        lines.append(f"  {step['n']}. {step['title']} on {step['host']}{became}")
        if step["before"] or step["after"]:
            lines.append(f"     {step['before'] or '-'} → {step['after'] or '-'}")
        lines.append(f"     $ {step['command']}")
        undo = f"undo: {step['undo']}" if step["undo"] else f"cannot be undone: {step['no_undo']}"
        lines.append(f"     {undo}")
        lines += [f"     {line}" for line in _result(step)]
    report = run["report"]
    if report:
        lines += [f"  - {finding}" for finding in report["findings"]]
    if report and report["table"]:
        head, *rows = _aligned(report["table"])
        lines += ["  " + "  ".join(row) for row in [head, *rows[:most]]]
        if left := len(rows[most:]) if most else 0:
            lines.append(f"  [… {left} more rows: keyturn run {run['id']} | less …]")
    lines.append(f"  {run['page']}")
    return "\n".join(lines)


def _decision(run: Mapping[str, Any]) -> list[str]:
    """Return what an approver has to know beside the plan, and what to type."""
    from bot.model.run import describe_proposals

    able = ", ".join(run["approvers"]) or "nobody"
    lines = [f"  takes {run['missing']} of {run['whose']}: {able}"]
    lines += [f"  {said}" for said in run["says"]]
    if run["proposals"]:
        lines.append(f"  {describe_proposals(run['proposals'])}")
    if run["expires_at"]:
        lines.append(f"  approve until {moment(run['expires_at'])}")
    if run["frozen"]:
        lines.append(f"  once approved it waits: {run['frozen']}")
    if run["wants_second_factor"]:
        return [*lines, "  this approval takes a second factor: approve it on its page"]
    return [*lines, f"  keyturn approve {run['id']} {run['digest'][:10]}"]


def _schedule(run: Mapping[str, Any]) -> list[str]:
    """Return what is approved with a request for a schedule."""
    if not run["schedule"]:
        return []
    from bot.workflow.schedule_facts import ScheduleFacts

    return [f"  {label}: {text}" for label, text in ScheduleFacts(**run["schedule"]).rows]


def _vote(vote: Mapping[str, Any]) -> str:
    instead = f" in the stead of {vote['in_stead_of']}" if vote["in_stead_of"] else ""
    how = "approved" if vote["approves"] else "denied"
    return f"  {how} by {vote['person']}{instead}{_when_and_why(vote['at'], vote['reason'])}"


def _when_and_why(at: str, why: str) -> str:
    return f", {moment(at)}" + (f": {why}" if why else "")


def _result(step: Mapping[str, Any]) -> list[str]:
    """Return how a step went, and the end of what its host said."""
    said = (step["output"] or "").splitlines()
    lines = [f"exit status {step['status']}"] if step["status"] else []
    lines += [step["trouble"]] if step["trouble"] else []
    if len(said) > _NEWEST_LINES:
        lines.append(f"[… {len(said) - _NEWEST_LINES} lines before; --json has all …]")
    return lines + [f"| {line}" for line in said[-_NEWEST_LINES:] if line]


def _aligned(table: Mapping[str, Any]) -> list[list[str]]:
    rows = [table["columns"], *table["rows"]]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows]
