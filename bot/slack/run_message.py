"""The card of a run: one message from the request to its end. Pure.

The same story always draws the same card, and only a card that shows all of a plan can approve it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import Decision, Run, State, StepRecord, describe_proposals
from bot.model.run_states import STEP_STATE_DISPLAYS
from bot.model.text import escape_control, escape_to_one_line, format_count
from bot.slack.blocks import (
    MAX_HEADER_LENGTH,
    Block,
    Element,
    Message,
    actions,
    bold,
    bullet_list,
    button,
    code,
    confirm_dialog,
    context,
    emoji,
    escape_mrkdwn,
    format_date,
    format_notification,
    header,
    link,
    preformatted,
    quote,
    rich_text,
    rich_text_section,
    shorten_text,
    text_element,
    user_mention,
)
from bot.slack.labels import build_run_label, format_run_line
from bot.slack.run_facts import SlackRunView
from bot.workflow import resubmit
from bot.workflow.schedule_facts import ScheduleDetails
from runbooks import Report, Table

# Slack folds long messages away; what is approved here must be seen here, and at a glance.
_MAX_STEPS = 12
_MAX_CHARACTERS = 6000
_MAX_COMMAND_LENGTH = 2500
_MAX_LISTED_STEPS = 20


def can_show_plan(proposal: ResolvedPlan) -> bool:
    """Return whether chat can show all of the plan; else nobody may approve it there."""
    commands = [str(step.command) for step in proposal.steps]
    return (
        len(commands) <= _MAX_STEPS
        and max(map(len, commands), default=0) <= _MAX_COMMAND_LENGTH
        and sum(map(len, _list_plan_texts(proposal))) <= _MAX_CHARACTERS
    )


def render_plan(proposal: ResolvedPlan, step_records: Sequence[StepRecord]) -> list[Block]:
    """Draw all of the plan, or, if it does not fit, a list of what it does."""
    became = {record.step_number: record for record in step_records}
    found = rich_text_section(
        bold("Found: "), text_element(shorten_text(proposal.current_state, 1000))
    )
    if not can_show_plan(proposal):
        return [rich_text(found, *_list_step_titles(proposal, became))]
    parts = [found]
    for numbers in _group_alike_steps(proposal.steps, became):
        parts += _render_steps(numbers, proposal.steps, became.get(numbers[0]))
    if proposal.notes:
        parts.append(bullet_list(*([text_element(note)] for note in proposal.notes)))
    return [rich_text(*parts)]


def render_schedule(facts: ScheduleDetails) -> Block:
    """Draw what a schedule does and when, above the steps that it would do now."""
    return rich_text(
        *(
            rich_text_section(bold(f"{label}: "), text_element(text))
            for label, text in facts.labelled_rows
        )
    )


def _group_alike_steps(
    steps: Sequence[PlannedStep], step_records: Mapping[int, StepRecord]
) -> Sequence[Sequence[int]]:
    """Return the numbers of steps that are to be drawn as one: the same on one host after another,
    and as far with each."""

    def all_but_host(n: int) -> object:
        record = step_records.get(n)
        return replace(steps[n - 1], host="", fingerprint=""), record and record.state

    numbers = range(1, len(steps) + 1)
    if len({step.host for step in steps}) < len(steps):
        return [[n] for n in numbers]
    return [list(group) for _, group in groupby(numbers, key=all_but_host)]


def _render_steps(
    numbers: Sequence[int], steps: Sequence[PlannedStep], record: StepRecord | None
) -> list[Element]:
    """Draw steps that differ in their hosts alone."""
    step = steps[numbers[0] - 1]
    hosts = ", ".join(steps[n - 1].host for n in numbers)
    which = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"
    return [
        rich_text_section(*_render_step_title(which, step, hosts, record)),
        preformatted(str(step.command)),
        *_render_undo(step),
    ]


def _render_step_title(
    step_numbers: str, step: PlannedStep, hosts: str, record: StepRecord | None
) -> list[Element]:
    parts = [bold(f"{step_numbers}. {step.title}"), text_element(f" on {hosts}")]
    if step.before or step.after:
        parts += [
            text_element(": "),
            code(step.before or "nothing"),
            text_element(" → "),
            code(step.after or "nothing"),
        ]
    return parts + (
        [text_element(f" – {STEP_STATE_DISPLAYS[record.state].label.lower()}")] if record else []
    )


def _render_undo(step: PlannedStep) -> list[Element]:
    if step.undo is None:
        return [rich_text_section(bold("Cannot be undone: "), text_element(step.no_undo_reason))]
    undo = str(step.undo)
    if "\n" in undo:
        return [rich_text_section(text_element("Undo:")), preformatted(undo)]
    return [rich_text_section(text_element("Undo: "), code(undo))]


def _list_step_titles(
    proposal: ResolvedPlan, step_records: Mapping[int, StepRecord]
) -> list[Element]:
    steps = list(enumerate(proposal.steps, start=1))
    titles = [
        [
            text_element(shorten_text(f"{n}. {step.title} on {step.host}", 150)),
            *(
                [text_element(f" – {STEP_STATE_DISPLAYS[step_records[n].state].label.lower()}")]
                if n in step_records
                else []
            ),
        ]
        for n, step in steps[:_MAX_LISTED_STEPS]
    ]
    if len(steps) > _MAX_LISTED_STEPS:
        titles.append([text_element(f"… and {len(steps) - _MAX_LISTED_STEPS} more")])
    return [bullet_list(*titles)]


def _list_plan_texts(proposal: ResolvedPlan) -> list[str]:
    texts = [proposal.current_state, *proposal.notes, *proposal.host_keys]
    for step in proposal.steps:
        undo = str(step.undo) if step.undo is not None else step.no_undo_reason
        texts += [step.title, step.host, str(step.command), undo, step.before, step.after]
    return texts


_MAX_FINDINGS = 20
_MAX_ROWS = 40
_MAX_TABLE_LENGTH = 3000


def render_report(report: Report) -> list[Block]:
    parts = [*_render_findings(report.findings)] if report.findings else []
    if report.table and report.table.rows:
        parts.append(preformatted(align_table(report.table)))
    return [rich_text(*parts)] if parts else []


def align_table(table: Table) -> str:
    """Return the columns below each other; what is too much is counted, not hidden."""
    rows = [[escape_to_one_line(cell) for cell in row] for row in [table.columns, *table.rows]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    shown, room = 0, _MAX_TABLE_LENGTH
    while shown < min(len(lines), _MAX_ROWS) and len(lines[shown]) < room:
        room -= len(lines[shown]) + 1
        shown += 1
    left = len(lines) - shown
    return "\n".join(lines[:shown] + ([f"… and {format_count(left, 'more row')}"] if left else []))


def _render_findings(findings: Sequence[str]) -> list[Block]:
    items = [[text_element(shorten_text(finding, 300))] for finding in findings[:_MAX_FINDINGS]]
    if len(findings) > _MAX_FINDINGS:
        items.append([text_element(f"… and {len(findings) - _MAX_FINDINGS} more")])
    return [bullet_list(*items)]


APPROVE, DENY = "approve", "deny"
ACCEPT, WITHDRAW = "accept", "withdraw"
# Opens the form of a run that came to nothing, with its values.
RESUBMIT = "again"
_RESUBMITTABLE_STATES = frozenset(
    {
        State.FAILED,
        State.REFUSED,
        State.DENIED,
        State.EXPIRED,
        State.WITHDRAWN,
        State.STALE,
        State.STOPPED,
    }
)
_MAX_MENTIONS = 5
_MAX_OUTPUT_LENGTH = 1500
_MAX_OUTPUTS = 5


def render_card(story: SlackRunView, *, buttons: bool = True) -> Message:
    """Draw the run as it is now. buttons: False where nobody could click them, as in an answer
    to a command."""
    run = story.run
    blocks = [
        *_render_head(story),
        *_render_break_glass(story),
        *_render_request(story),
        rich_text(_render_status(story)),
        *_render_run_report(run),
    ]
    if run.state is State.PENDING and run.plan and not can_show_plan(run.plan):
        blocks.append(_render_page_hint(story, "is too long to be shown whole in chat"))
    elif run.state is State.PENDING and run.requirements.requires_second_factor:
        blocks.append(_render_page_hint(story, "takes a second factor, which chat does not have"))
    elif run.state is State.PENDING and run.requirements.requires_reason:
        blocks.append(_render_reason_hint(story))
    if story.proposals:
        told = describe_proposals(story.proposals)
        blocks.append(
            rich_text(rich_text_section(emoji("speech_balloon"), text_element(f" {told}")))
        )
    blocks += _render_facts(story)
    if run.state is State.PENDING and buttons:
        blocks.append(_build_decision_buttons(run))
    if run.state is State.COUNTER_PROPOSED and buttons:
        blocks.append(_build_proposal_buttons(run))
    if run.state in _RESUBMITTABLE_STATES and buttons and not resubmit.get_resubmit_refusal(run):
        blocks.append(_build_resubmit_button(run))
    return Message(format_notification(format_run_line(story)), blocks)


def render_decided(story: SlackRunView) -> Message:
    """Draw what a copy says once there is nothing to decide any more: by whom, and when."""
    run = story.run
    standing = _render_status(story)
    if not run.is_ended and run.state is not State.COUNTER_PROPOSED:
        # How it goes on is told where the card stands; a copy is not drawn anew for each step.
        standing = rich_text_section(
            emoji("key"), text_element(" "), bold("Decided"), text_element(": it takes its course")
        )
    title = (
        format_run_line(story) if run.is_ended else f"Decided: {run.title} ({story.area_title})"
    )
    return Message(
        format_notification(title),
        [*_render_head(story), rich_text(standing), *_render_facts(story)],
    )


def render_result(story: SlackRunView) -> Message:
    """Draw how the run ended, for its thread; the only message that calls its asker."""
    run = story.run
    seen = build_run_label(story)
    asker = [user_mention(story.requester), text_element(" ")] if story.requester else []
    parts = [
        rich_text_section(
            *asker,
            emoji(seen.icon),
            text_element(" "),
            bold(seen.label),
            text_element(seen.text_after_label),
        )
    ]
    spoken = [record for record in story.step_records if record.output.strip()]
    for record in spoken[:_MAX_OUTPUTS]:
        parts += [
            rich_text_section(text_element(_format_output_title(run, record))),
            preformatted(_truncate_output(record.output)),
        ]
    if is_output_cut(story):
        page = (
            [text_element(", and on "), link(story.page_url, "its page")] if story.page_url else []
        )
        parts.append(
            rich_text_section(
                text_element("All of it is in the file below"), *page, text_element(".")
            )
        )
    return Message(format_notification(format_run_line(story)), [rich_text(*parts)])


def is_output_cut(story: SlackRunView) -> bool:
    """Return whether hosts said more than a message holds."""
    spoken = [record for record in story.step_records if record.output.strip()]
    long = any(
        len(escape_control(record.output.strip())) > _MAX_OUTPUT_LENGTH for record in spoken
    )
    return long or len(spoken) > _MAX_OUTPUTS


def format_full_output(story: SlackRunView) -> str:
    """Return all that the hosts said, step by step, as a plain text."""
    return "\n".join(
        f"# {escape_to_one_line(_format_output_title(story.run, record))}\n"
        f"{escape_control(record.output.rstrip())}\n"
        for record in story.step_records
        if record.output.strip()
    )


def render_follow_up(story: SlackRunView) -> Message:
    """Draw how the work ended that the run had started and that went on after it."""
    run = story.run
    asker = [user_mention(story.requester), text_element(" ")] if story.requester else []
    told = run.report.summary if run.report else ""
    well = run.report is not None and run.report.healthy
    sign = emoji("white_check_mark" if well else "warning")
    over = "It is over" if well else "It is over, and needs attention"
    said = [
        rich_text_section(
            *asker,
            sign,
            text_element(" "),
            bold(f"{over}: "),
            text_element(shorten_text(told, 1000)),
        )
    ]
    blocks = [rich_text(*said), *_render_run_report(run)]
    return Message(format_notification(f"Run {run.id}, {run.title}: {over}: {told}"), blocks)


# How what did not come from chat came in.
_SOURCE_LABELS = {
    "web": "on the web",
    "api": "through the API",
    "cli": "on the command line",
    "schedule": "by the clock",
}


def _render_head(story: SlackRunView) -> list[Block]:
    run = story.run
    title = f"{run.title} · {story.area_title}"
    asked = (
        f"run {run.id} · asked by {escape_mrkdwn(story.get_person_name(run.requested_by))} · "
        f"{format_date(run.requested_at)}"
    )
    if run.origin.source != "slack":
        asked += f" · {_SOURCE_LABELS.get(run.origin.source, escape_mrkdwn(run.origin.source))}"
    return [header(title), context(asked)]


def _render_request(story: SlackRunView) -> list[Block]:
    run = story.run
    blocks: list[Block] = []
    if len(f"{run.title} · {story.area_title}") > MAX_HEADER_LENGTH:
        blocks.append(rich_text(rich_text_section(bold(run.title))))
    if run.reason:
        blocks.append(rich_text(quote(run.reason)))
    if story.schedule:
        blocks.append(render_schedule(story.schedule))
    if run.plan and run.state is not State.NO_CHANGES:
        blocks += render_plan(run.plan, story.step_records)
    return blocks


def _render_run_report(run: Run) -> list[Block]:
    return render_report(run.report) if run.report else []


def _render_status(story: SlackRunView) -> Element:
    seen = build_run_label(story)
    said = shorten_text(seen.text_after_label, 2000)
    parts = [emoji(seen.icon), text_element(" "), bold(seen.label), text_element(said)]
    if story.run.state is State.PENDING:
        parts += _render_approvers(story)
    if story.run.state is State.COUNTER_PROPOSED and story.requester:
        parts += [text_element(" – "), user_mention(story.requester)]
    return rich_text_section(*parts)


def _render_approvers(story: SlackRunView) -> list[Element]:
    """Name everybody who could turn a key, so that they hear of it."""
    votes = story.approvals
    turned = {
        story.get_person_name(who)
        for vote in votes
        for who in (vote.person, vote.on_behalf_of)
        if who
    }
    able = [
        approver
        for approver in story.approvers
        if approver.name not in turned and approver.on_behalf_of not in turned
    ]
    if not able:
        return [text_element(" – nobody can give it")]
    parts: list[Element] = [text_element(" – ")]
    for approver in able[:_MAX_MENTIONS]:
        parts += [
            user_mention(approver.slack_user)
            if approver.slack_user
            else text_element(approver.name)
        ]
        parts += [text_element(f" for {approver.on_behalf_of}")] if approver.on_behalf_of else []
        parts += [text_element(" ")]
    more = len(able) - _MAX_MENTIONS
    return [*parts, text_element(f"and {more} more")] if more > 0 else parts[:-1]


def _render_facts(story: SlackRunView) -> list[Block]:
    """Say who approved, and the facts that tell this run from any other."""
    run = story.run
    facts: list[str] = []
    if run.digest:
        facts.append(f"plan {run.short_digest}")
    if run.expires_at and run.state in {State.PENDING, State.QUEUED}:
        verb = "approve" if run.state is State.PENDING else "starts"
        facts.append(f"{verb} until {format_date(run.expires_at)}")
    if story.freeze_after_approval:
        facts.append(f"once approved it waits: {escape_mrkdwn(story.freeze_after_approval)}")
    if run.ended_at:
        facts.append(format_date(run.ended_at))
        # Chat keeps how far the log was: a witness that no database administrator can edit.
        facts.append(story.log_reference)
    if run.state is State.SUCCEEDED and _has_undo(run):
        facts.append(f"/keyturn undo {run.id}")
    facts.append(f"<{story.page_url}|details>" if story.page_url else f"/keyturn run {run.id}")
    facts = [fact for fact in facts if fact]
    approved = [context(_format_approvals(story))] if story.approvals else []
    if story.used_grant and run.grant_id:
        by = f"By grant {story.used_grant.grant_id} of {story.used_grant.granted_by}"
        left = f"{story.used_grant.uses_left} of {story.used_grant.per_hour} left this hour"
        approved.append(context(escape_mrkdwn(f"{by}: {left}")))
    return [*approved, context(" · ".join(facts))]


def _has_undo(run: Run) -> bool:
    return run.undo_of is None and run.plan is not None and run.plan.is_reversible


def _format_approvals(story: SlackRunView) -> str:
    votes = [
        f"{escape_mrkdwn(_format_approver(story, vote))} · {format_date(vote.decided_at)}"
        + (f" · {escape_mrkdwn(shorten_text(vote.reason, 200))}" if vote.reason else "")
        for vote in story.approvals
    ]
    return "Approved by " + ", ".join(votes)


def _format_approver(story: SlackRunView, vote: Decision) -> str:
    name = story.get_person_name(vote.person)
    return f"{name} for {story.get_person_name(vote.on_behalf_of)}" if vote.on_behalf_of else name


def _build_proposal_buttons(run: Run) -> Block:
    """Let the asker take over the values that an approver proposes, or decline them."""
    value = f"{run.id}:{run.short_digest}"
    block_id = f"run-{run.id}-{run.version}"
    decline = button(
        "Decline", action=WITHDRAW, value=value, label=f"Decline run {run.id}: {run.title}"
    )
    if run.plan is None or not can_show_plan(run.plan):
        return actions(block_id, decline)
    accept = button(
        "Accept", action=ACCEPT, value=value, label=f"Accept run {run.id}: {run.title}"
    ) | {"style": "primary"}
    return actions(block_id, accept, decline)


def _build_resubmit_button(run: Run) -> Block:
    label = f"Ask again for run {run.id}: {run.title}"
    ask = button("Ask Again", action=RESUBMIT, value=str(run.id), label=label)
    return actions(f"run-{run.id}-{run.version}", ask)


def _build_decision_buttons(run: Run) -> Block:
    value = f"{run.id}:{run.short_digest}"
    deny = button("Deny", action=DENY, value=value, label=f"Deny run {run.id}: {run.title}")
    block_id = f"run-{run.id}-{run.version}"
    here = not (run.requirements.requires_second_factor or run.requirements.requires_reason)
    if run.plan is None or not can_show_plan(run.plan) or not here:
        return actions(block_id, deny)
    verb = _get_button_verb(run)
    approve = button(
        f"Approve {verb}",
        action=APPROVE,
        value=value,
        label=f"Approve run {run.id}: {run.title}",
    ) | {"style": "primary"}
    if not run.plan.is_reversible:
        approve["confirm"] = confirm_dialog(
            "This cannot be undone",
            f"{run.title}: parts of it cannot be undone. Plan {run.short_digest}.",
            yes=f"Approve {verb}",
        )
    return actions(block_id, approve, deny)


def _render_page_hint(story: SlackRunView, reason: str) -> Block:
    """Say where a plan is approved that cannot be approved in chat."""
    said = text_element(f"This plan {reason}, so it is approved on ")
    if not story.page_url:
        return rich_text(rich_text_section(said, text_element("its web page.")))
    return rich_text(rich_text_section(said, link(story.page_url, "its page"), text_element(".")))


def _render_reason_hint(story: SlackRunView) -> Block:
    """Say how a plan is approved whose approval takes a reason, which a button cannot give."""
    run = story.run
    typed = f"/keyturn approve {run.id} {run.short_digest} because REASON"
    on = [text_element(", or on "), link(story.page_url, "its page")] if story.page_url else []
    said = text_element("The rules want to know why it is approved: type ")
    return rich_text(rich_text_section(said, code(typed), *on, text_element(".")))


def _render_break_glass(story: SlackRunView) -> list[Block]:
    """Say that the glass was broken for it, or that its asker means to."""
    pane = story.break_glass
    if pane is None:
        return []
    who = story.get_person_name(pane.person)
    if pane.activated_at is None:
        if story.run.state not in {State.PLANNING, State.PENDING, State.QUEUED}:
            return []
        page = (
            [text_element(" "), link(story.page_url, "Break it there")] if story.page_url else []
        )
        told = text_element(
            f"{who} means to break the glass, on its page and with a second factor."
        )
        return [
            rich_text(rich_text_section(emoji("rotating_light"), text_element(" "), told, *page))
        ]
    if pane.reviewed_at is not None:
        after = f"Reviewed by {story.get_person_name(pane.reviewer)}: {pane.review}"
    else:
        after = f"Somebody else reviews it within a day: review {pane.run} and what they found."
    told = [bold(f"{who} broke the glass: "), text_element(f"{pane.reason} – {after}")]
    return [rich_text(rich_text_section(emoji("rotating_light"), text_element(" "), *told))]


def _get_button_verb(run: Run) -> str:
    if run.timing is not None:
        return "schedule"
    return "Undo" if run.undo_of else shorten_text(run.runbook.split()[-1].capitalize(), 20)


def _format_output_title(run: Run, record: StepRecord) -> str:
    steps = run.plan.steps if run.plan else ()
    title = steps[record.step_number - 1].title if record.step_number <= len(steps) else ""
    return f"{record.step_number}. {title}: {run.host} said"


def _truncate_output(output: str) -> str:
    """Return the last part of what a host said: the end is where the trouble is."""
    said = escape_control(output.strip())
    left = len(said) - _MAX_OUTPUT_LENGTH
    return f"… {format_count(left, 'character')} before this\n{said[left:]}" if left > 0 else said
