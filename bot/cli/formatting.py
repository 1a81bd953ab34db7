"""Text of a run for a terminal."""

from collections.abc import Mapping
from typing import Any

from bot.cli.terminal import format_sentence_times, format_time

_MAX_OUTPUT_LINES = 20
# Of a command with its standard input.
_MAX_COMMAND_LINES = 5


def format_run_details(run: Mapping[str, Any], *, max_rows: int | None = None) -> str:
    """Return the requester, decisions, plan and result of a run as text.

    Args:
        max_rows: Number of rows of the report's table; None for all, and for commands in full.
    """
    lines = [
        f"run {run['id']}: {run['title']}",
        f"  {run['label']}. {format_sentence_times(run['summary'])}".rstrip(),
    ]
    requester = f"{format_requester(run)} on {', '.join(run['hosts'])}"
    lines.append(
        f"  requested by {requester}{_format_time_and_reason(run['requested_at'], run['reason'])}"
    )
    lines += [_format_decision(decision) for decision in run["decisions"]]
    lines += [_format_question(one) for one in run["questions"]]
    if run["review"]:
        lines += _format_review(run["review"], can_review="review" in run["actions"])
    lines += _format_next_action(run)
    lines += _format_schedule(run)
    plan = run["plan"]
    if plan is not None:
        lines.append(f"  {_format_state_label(run)}: {plan['current_state']}")
        lines += [f"  ! {format_sentence_times(note)}" for note in plan["notes"]]
    for step in plan["steps"] if plan else ():
        more = f"keyturn run {run['id']} | less" if max_rows else ""
        lines += _format_step(step, more)
    report = run["report"]
    if report:
        lines += format_report(report, max_rows=max_rows)
        if left := len(report["table"]["rows"][max_rows:]) if max_rows and report["table"] else 0:
            lines.append(f"  [… {left} more rows: keyturn run {run['id']} | less …]")
    lines.append(f"  {run['page']}")
    return "\n".join(lines)


def format_report(report: Mapping[str, Any], *, max_rows: int | None = None) -> list[str]:
    """Return the findings of a report, and as many rows of its table."""
    from bot.model.text import align_rows

    lines = [f"  - {finding}" for finding in report["findings"]]
    if report["table"]:
        head, *rows = align_rows([report["table"]["columns"], *report["table"]["rows"]])
        lines += [f"  {row}" for row in [head, *rows[:max_rows]]]
    return lines


def format_requester(run: Mapping[str, Any]) -> str:
    """Return who requested a run, by id: `dora`, or `agent:triage-bot for dora`."""
    return " for ".join(filter(None, (run["requested_by"], run["requested_for"])))


def _format_state_label(run: Mapping[str, Any]) -> str:
    """Return what the current state of the plan is now: `state at 06:24`, or `state before`."""
    plan = run["plan"]
    if run["started_at"] or not plan["planned_at"]:
        return str(plan["state_label"])
    return f"State at {format_time(plan['planned_at'])}"


def _format_step(step: Mapping[str, Any], more: str) -> list[str]:
    """Return a step. more: what prints its commands in full, if they are to be shortened."""
    state = f" [{step['state']}]" if step["state"] else ""
    lines = [f"  {step['n']}. {step['title']} on {step['host']}{state}"]
    if step["before"] or step["after"]:
        lines.append(f"     {step['before'] or '-'} → {step['after'] or '-'}")
    undo = f"undo: {step['undo']}" if step["undo"] else f"cannot be undone: {step['no_undo']}"
    lines += [f"     $ {_shorten_command(step['command'], more)}"]
    lines += [f"     {_shorten_command(undo, more)}"]
    return lines + [f"     {line}" for line in _format_step_result(step)]


def _shorten_command(command: str, more: str) -> str:
    """Return a command without most of its standard input, if that is long."""
    lines = command.splitlines()
    left = len(lines) - _MAX_COMMAND_LINES
    if not more or left <= 1:
        return command
    return "\n".join([*lines[:_MAX_COMMAND_LINES], f"     [… {left} more lines: {more} …]"])


def _format_next_action(run: Mapping[str, Any]) -> list[str]:
    """Return what people have to do next, and the commands that the reader may use."""
    may = run["actions"]
    if run["state"] == "pending":
        return _format_pending_approval(run)
    if run["state"] == "planned":
        return _format_planned(run)
    if run["counter_proposal"]:
        *lines, answer = format_counter_proposal(run, run["counter_proposal"])
        return [f"  {line}" for line in [*lines, *([answer] if "accept" in may else [])]]
    return [f"  keyturn replan {run['id']}"] if "replan" in may else []


def format_counter_proposal(run: Mapping[str, Any], proposal: Mapping[str, Any]) -> list[str]:
    """Return what is proposed, value by value, and last the commands that answer it."""
    reason = f": {proposal['reason']}" if proposal["reason"] else ""
    changes = [
        f"{change['field']}: {change['requested'] or '-'} → {change['proposed'] or '-'}"
        for change in proposal["changes"]
    ]
    accept = f"keyturn accept {run['id']} {run['digest'][:10]}"
    return [
        f"proposed by {proposal['proposed_by']} for run {run['proposal_for']}{reason}",
        *changes,
        f"{accept}, or keyturn withdraw {run['id']}",
    ]


def _format_pending_approval(run: Mapping[str, Any]) -> list[str]:
    """Return what an approver needs to know besides the plan, and the command to approve."""
    from bot.model.run import describe_proposals

    delegates = [f"{one['person']} on behalf of {one['on_behalf_of']}" for one in run["delegates"]]
    approvers = ", ".join([*run["approvers"], *delegates]) or "no one"
    groups = f" of {run['approvals_from']}" if run["approvals_from"] else ""
    lines = [f"  needs {run['missing_approvals']}{groups}: {approvers}"]
    if run["assigned_to"]:
        lines.append(f"  assigned to {run['assigned_to']}")
    if run["questions"] and not run["questions"][-1]["is_answer"]:
        lines.append(f"  the question is open: keyturn answer {run['id']} TEXT")
    lines += [f"  {note}" for note in run["policy_notes"]]
    if run["proposals"]:
        lines.append(f"  {describe_proposals(run['proposals'])}")
    if run["expires_at"]:
        lines.append(f"  approval expires {format_time(run['expires_at'])}")
    if run["frozen"]:
        lines.append(f"  on hold after approval: {format_sentence_times(run['frozen'])}")
    if run["expiry_before_freeze_ends"]:
        lines.append(f"  {format_sentence_times(run['expiry_before_freeze_ends'])}")
    return [*lines, *_format_approve_command(run)]


def _format_approve_command(run: Mapping[str, Any]) -> list[str]:
    """Return why the viewer cannot approve or sign the run, or how they do."""
    if run["approve_refusal"]:
        return [f"  {run['approve_refusal']}"]
    first = [f"  {run['requested_by']} has to sign it first"] * run["lacks_signed_request"]
    may = {"approve", "sign"} & {*run["actions"]}
    return [*first, *([f"  {format_approval(run)}"] if may else [])]


def format_approval(run: Mapping[str, Any]) -> str:
    """Return how a person approves or signs a run that waits for them."""
    if run["requires_signature"]:
        return f"keyturn sign {run['id']}"
    if run["requires_second_factor"]:
        return f"approve it with your second factor on {run['page']}"
    return f"keyturn approve {run['id']} {run['digest'][:10]}"


def _format_planned(run: Mapping[str, Any]) -> list[str]:
    """Return what becomes of the plan if it is requested, and the command to request it."""
    lines = [
        f"  {format_sentence_times(run['forecast'])}",
        *(f"  {note}" for note in run["policy_notes"]),
    ]
    if run["expires_at"]:
        lines.append(f"  plan expires {format_time(run['expires_at'])}")
    command = f"  keyturn submit {run['id']} {run['digest'][:10]}"
    return [*lines, *([command] if "submit" in run["actions"] else [])]


def list_irreversible_steps(run: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each step of a run's plan that cannot be undone."""
    steps = run["plan"]["steps"] if run["plan"] else ()
    return [
        f"“{step['title']}” cannot be undone: {step['no_undo']}"
        for step in steps
        if not step["undo"]
    ]


def _format_schedule(run: Mapping[str, Any]) -> list[str]:
    """Return the schedule that is approved with the run."""
    if not run["schedule"]:
        return []
    from bot.queries.schedule_details import ScheduleDetails

    return [
        f"  {label}: {text}" for label, text in ScheduleDetails(**run["schedule"]).labelled_rows
    ]


def _format_decision(decision: Mapping[str, Any]) -> str:
    owner = f" on behalf of {decision['on_behalf_of']}" if decision["on_behalf_of"] else ""
    how = "approved" if decision["approves"] else "denied"
    if decision.get("start_at"):
        how += f" to start at {format_time(decision['start_at'])}"
    when = _format_time_and_reason(decision["at"], decision["reason"])
    return f"  {how} by {decision['person']}{owner}{when}"


def _format_review(review: Mapping[str, Any], *, can_review: bool) -> list[str]:
    """Return what a person did without approval, and its review by another person."""
    used = _format_time_and_reason(review["activated_at"], review["reason"])
    lines = [f"  {review['person']} {review['deed']}{used}"]
    if review["reviewed_at"]:
        done = _format_time_and_reason(review["reviewed_at"], review["findings"])
        return [*lines, f"  reviewed by {review['reviewer']}{done}"]
    lines.append(f"  another person must review it by {format_time(review['due_at'])}")
    return [*lines, *([f"  keyturn review {review['run']} --findings …"] if can_review else [])]


def _format_question(question: Mapping[str, Any]) -> str:
    verb = "answered" if question["is_answer"] else "asked"
    return f"  {verb} by {question['person']}" + _format_time_and_reason(
        question["at"], question["text"]
    )


def _format_time_and_reason(iso_time: str, reason: str) -> str:
    return f", {format_time(iso_time)}" + (f": {reason}" if reason else "")


def _format_step_result(step: Mapping[str, Any]) -> list[str]:
    """Return the exit status and error of a step, and the end of its output."""
    output = (step["output"] or "").splitlines()
    lines = [f"exit status {step['status']}"] if step["status"] else []
    lines += [step["error"]] if step["error"] else []
    if len(output) > _MAX_OUTPUT_LINES:
        lines.append(f"[… {len(output) - _MAX_OUTPUT_LINES} more lines: --json …]")
    return lines + [f"| {line}" for line in output[-_MAX_OUTPUT_LINES:] if line]
