"""The card of a run: one message from the request to its end. Pure.

The same view always renders the same card. Only a card with the whole plan has an Approve button.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from itertools import groupby

from bot.model import resubmit
from bot.model.agents import WRITTEN_BY_AGENT
from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import (
    Run,
    State,
    StepRecord,
    describe_decider,
    describe_proposals,
    describe_source,
)
from bot.model.run_states import STEP_STATE_DISPLAYS, get_child_run_display, starts_later
from bot.model.text import (
    align_rows,
    capitalise_sentence,
    describe_length,
    escape_control,
    escape_to_one_line,
    format_count,
)
from bot.model.times import to_datetime
from bot.queries.pending import CounterProposal
from bot.queries.questions import Remark, get_answerer
from bot.queries.schedule_details import ScheduleDetails
from bot.slack import run_buttons
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    MAX_HEADER_LENGTH,
    Block,
    Element,
    Inline,
    Message,
    actions,
    bold,
    bullet_list,
    code,
    confirm_dialog,
    context,
    date_element,
    emoji,
    escape_mrkdwn,
    escape_sentence,
    format_date,
    format_notification,
    format_place,
    header,
    link,
    paragraph,
    preformatted,
    quote,
    quote_with_links,
    rich_text,
    rich_text_section,
    shorten_text,
    table,
    user_mention,
)
from bot.slack.labels import (
    TONE_EMOJI,
    build_run_label,
    format_heading,
    format_run_line,
    format_title_with_host,
    rank_tone,
)
from bot.slack.run_facts import SlackRunView
from runbooks import Report, Table

# Slack collapses long messages; a plan that is approved here must be visible here as a whole.
_MAX_STEPS = 12
_MAX_CHARACTERS = 6000
_MAX_COMMAND_LENGTH = 2500
_MAX_LISTED_STEPS = 20
TOO_LONG = "This plan is too long for chat."


class PlanPart(Enum):
    """How much of a plan is shown."""

    STEPS = auto()
    """What changes where, after the decision."""
    COMMANDS = auto()
    """All that runs, for the decision, and what cannot be undone; how the rest is undone follows
    on demand."""
    ALL = auto()


def can_show_plan(proposal: ResolvedPlan) -> bool:
    """Return whether chat can show the whole plan; if not, it is approved on its page."""
    commands = [str(step.command) for step in proposal.steps]
    return (
        len(commands) <= _MAX_STEPS
        and max(map(len, commands), default=0) <= _MAX_COMMAND_LENGTH
        and sum(map(len, _list_plan_texts(proposal))) <= _MAX_CHARACTERS
    )


def render_plan(
    proposal: ResolvedPlan,
    step_records: Sequence[StepRecord],
    *,
    state_label: str,
    shown: PlanPart = PlanPart.ALL,
) -> list[Block]:
    """Render a plan, or only the titles of its steps if it is too long.

    Args:
        state_label: What the state of the host in the plan is now.
        shown: How much of it; all by default.
    """
    records = {record.step_number: record for record in step_records}
    parts: list[Element] = []
    # A plan without steps, of a schedule of checks, has only that.
    if shown is not PlanPart.STEPS or not proposal.steps:
        state = shorten_text(proposal.current_state, 1000)
        parts.append(rich_text_section(bold(f"{state_label}: "), state))
    if not can_show_plan(proposal):
        return [rich_text(*parts, *_list_step_titles(proposal, records))]
    for numbers in _group_alike_steps(proposal.steps, records):
        parts += _render_steps(numbers, proposal.steps, records.get(numbers[0]), shown)
    if proposal.notes and shown is not PlanPart.STEPS:
        parts.append(bullet_list(*([note] for note in proposal.notes)))
    return [rich_text(*parts)] if parts else []


def render_schedule(facts: ScheduleDetails) -> Block:
    """Render what a schedule does and when, above the steps it would run now."""
    return rich_text(
        *(rich_text_section(bold(f"{label}: "), text) for label, text in facts.labelled_rows)
    )


def _group_alike_steps(
    steps: Sequence[PlannedStep], step_records: Mapping[int, StepRecord]
) -> Sequence[Sequence[int]]:
    """Return the numbers of steps that are rendered as one: equal except for host, same state."""

    def get_key_without_host(n: int) -> object:
        record = step_records.get(n)
        return replace(steps[n - 1], host="", fingerprint=""), record and record.state

    numbers = range(1, len(steps) + 1)
    if len({step.host for step in steps}) < len(steps):
        return [[n] for n in numbers]
    return [list(group) for _, group in groupby(numbers, key=get_key_without_host)]


def _render_steps(
    numbers: Sequence[int],
    steps: Sequence[PlannedStep],
    record: StepRecord | None,
    shown: PlanPart,
) -> list[Element]:
    """Render steps that differ only in their hosts."""
    step = steps[numbers[0] - 1]
    hosts = ", ".join(steps[n - 1].host for n in numbers)
    if shown is PlanPart.STEPS and len(numbers) > _MAX_NAMED_HOSTS:
        hosts = format_count(len(numbers), "host")
    which = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"
    title = rich_text_section(*_render_step_title(which, step, hosts, record))
    if shown is PlanPart.STEPS:
        return [title]
    undo = _render_undo(step) if shown is PlanPart.ALL or step.undo is None else []
    length = describe_length(step.command)
    lead = [rich_text_section(f"{length}:")] if length else []
    return [title, *lead, preformatted(str(step.command)), *undo]


def _render_step_title(
    step_numbers: str, step: PlannedStep, hosts: str, record: StepRecord | None
) -> list[Inline]:
    parts = [bold(f"{step_numbers}. {step.title}"), f" on {hosts}"]
    if step.before or step.after:
        parts += [": ", code(step.before or "nothing"), " → ", code(step.after or "nothing")]
    return parts + ([f" – {STEP_STATE_DISPLAYS[record.state].label.lower()}"] if record else [])


def _render_undo(step: PlannedStep) -> list[Element]:
    if step.undo is None:
        return [rich_text_section(bold("Cannot be undone: "), step.no_undo_reason)]
    undo = str(step.undo)
    if "\n" in undo:
        return [rich_text_section("Undo:"), preformatted(undo)]
    return [rich_text_section("Undo: ", code(undo))]


def _list_step_titles(
    proposal: ResolvedPlan, step_records: Mapping[int, StepRecord]
) -> list[Element]:
    steps = list(enumerate(proposal.steps, start=1))
    titles = [
        [
            shorten_text(f"{n}. {step.title} on {step.host}", 150),
            *(
                [f" – {STEP_STATE_DISPLAYS[step_records[n].state].label.lower()}"]
                if n in step_records
                else []
            ),
        ]
        for n, step in steps[:_MAX_LISTED_STEPS]
    ]
    if len(steps) > _MAX_LISTED_STEPS:
        titles.append([f"… and {len(steps) - _MAX_LISTED_STEPS} more"])
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
    """Return the table as aligned text; rows that do not fit are counted."""
    rows = [[escape_to_one_line(cell) for cell in row] for row in [table.columns, *table.rows]]
    lines = align_rows(rows)
    shown, room = 0, _MAX_TABLE_LENGTH
    while shown < min(len(lines), _MAX_ROWS) and len(lines[shown]) < room:
        room -= len(lines[shown]) + 1
        shown += 1
    left = len(lines) - shown
    return "\n".join(lines[:shown] + ([f"… and {format_count(left, 'more row')}"] if left else []))


def _render_findings(findings: Sequence[str]) -> list[Block]:
    items = [[shorten_text(finding, 300)] for finding in findings[:_MAX_FINDINGS]]
    if len(findings) > _MAX_FINDINGS:
        items.append([f"… and {len(findings) - _MAX_FINDINGS} more"])
    return [bullet_list(*items)]


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
# In other states the card shows no commands: *Details* does.
_STATES_WITH_COMMANDS = frozenset({State.PLANNED, State.PENDING, State.COUNTER_PROPOSED})
_WATCHABLE_STATES = frozenset({State.QUEUED, State.STARTING, State.RUNNING, State.UNKNOWN})
_STOPPABLE_STATES = frozenset({State.QUEUED, State.STARTING, State.RUNNING})
_MAX_MENTIONS = 5
# Slack takes ten thousand characters in the table of a message.
_MAX_HOST_ROWS = 15
# A table says more of more hosts.
_MAX_NAMED_HOSTS = 3
_MAX_REMARKS = 6
_MAX_OUTPUT_LENGTH = 1500
_MAX_OUTPUTS = 5


def render_card(run_view: SlackRunView, *, buttons: bool = True) -> Message:
    """Render the run as it is now.

    buttons: False for an ephemeral answer, never updated. It has no Details, and so shows undo.
    """
    run = run_view.run
    blocks = [
        *_render_head(run_view),
        *_render_break_glass(run_view),
        *_render_request(run_view, undecided=PlanPart.COMMANDS if buttons else PlanPart.ALL),
        *_render_status(run_view),
        *_render_hosts(run_view),
        *_render_run_report(run),
    ]
    if run.state is State.PENDING and run.plan and not can_show_plan(run.plan):
        blocks.append(render_page_hint(run_view, f"{TOO_LONG} Approve it on"))
    elif run.state is State.PENDING and run.requirements.requires_signature:
        blocks.append(render_signing_hint(run_view))
    elif run.state is State.PENDING and run.requirements.requires_second_factor:
        blocks.append(render_page_hint(run_view, "This plan needs a second factor. Approve it on"))
    elif run.state is State.PENDING and not buttons:
        command = f"{COMMAND} approve {run.id} {run.short_digest}"
        blocks.append(rich_text(rich_text_section("Approvers type ", code(command))))
    if run_view.view.proposals:
        text = describe_proposals(run_view.view.proposals)
        blocks.append(paragraph(emoji("speech_balloon"), f" {text}"))
    blocks += [*_render_discussion(run_view), *_render_facts(run_view)]
    if buttons and (shown := _build_buttons(run_view)):
        blocks.append(actions(f"run-{run.id}-{run.version}", *shown))
    return _build_message(run_view, format_run_line(run_view), blocks)


def _build_message(run_view: SlackRunView, text: str, blocks: Sequence[Block]) -> Message:
    """Return a message about a run. text: its notification, not escaped."""
    place = format_place(run_view.run.id, run_view.page_url)
    return Message(format_notification(text), blocks, place=place)


def _render_hosts(run_view: SlackRunView) -> list[Block]:
    """Render how each run of a request for several hosts is: those that need a look first."""
    run, children = run_view.run, run_view.view.children
    if run.state in _STATES_WITH_COMMANDS or run.started_at is None or not children:
        return []
    shown = [(child, get_child_run_display(child, run.state)) for child in children]
    shown.sort(key=lambda pair: rank_tone(pair[1].tone))
    rows = [
        (
            child.title if run.is_sequence else child.host,
            f"{TONE_EMOJI[display.tone]} {display.label}",
            shorten_text(child.summary, 120),
        )
        for child, display in shown[:_MAX_HOST_ROWS]
    ]
    more = len(shown) - len(rows)
    rows += [(f"and {more} more", "", "")] if more > 0 else []
    return [table(("Change" if run.is_sequence else "Host", "State", "Result"), rows)]


def render_signing_hint(run_view: SlackRunView) -> Block:
    """Render who signs the plan, and where."""
    run, page = run_view.run, run_view.page_url
    who = "First the requester" if run_view.view.awaits_signature else "An approver"
    where = "on its page, or in a terminal by" if page else "in a terminal by"
    return paragraph(
        emoji("key"), f" {who} signs this plan, {where} ", code(f"keyturn sign {run.id}")
    )


def render_decided(run_view: SlackRunView) -> Message:
    """Render a copy of the card after the decision: by whom, and when."""
    run = run_view.run
    status = _render_status(run_view)
    if not run.is_ended and run.state is not State.COUNTER_PROPOSED:
        # The card shows the progress; copies are not updated for each step.
        status = [paragraph(emoji("key"), " ", bold("Decided"), ": the card shows its progress")]
    title = (
        format_run_line(run_view)
        if run.is_ended
        else f"Run {run.id} · Decided: {format_title_with_host(run)} ({run_view.area_title})"
    )
    return _build_message(
        run_view, title, [*_render_head(run_view), *status, *_render_facts(run_view)]
    )


def render_result(run_view: SlackRunView) -> Message:
    """Render how the run ended, for its thread; only this message mentions the requester."""
    run = run_view.run
    label = build_run_label(run_view)
    mention = [user_mention(run_view.requester), " "] if run_view.requester else []
    parts = [
        rich_text_section(
            *mention,
            *(emoji(label.icon), " ", bold(format_heading(run_view)), label.text_after_label),
        )
    ]
    outputs = [record for record in run_view.step_records if record.output.strip()]
    for record in outputs[:_MAX_OUTPUTS]:
        parts += [
            rich_text_section(_format_output_title(run, record)),
            preformatted(_truncate_output(record.output)),
        ]
    if is_output_cut(run_view):
        page = [" and on ", link(run_view.page_url, "its page")] if run_view.page_url else []
        parts.append(rich_text_section("The full output is in the file below", *page, "."))
    # A witness outside the database: its administrators cannot edit messages in Slack.
    log = [context(run_view.log_reference)] if run_view.log_reference else []
    return _build_message(run_view, format_run_line(run_view), [rich_text(*parts), *log])


def render_ended(run_view: SlackRunView) -> Message:
    """Render how the run ended for a person who watched it, without output and reason."""
    label = build_run_label(run_view)
    heading = paragraph(emoji(label.icon), " ", bold(format_heading(run_view)))
    result = [paragraph(capitalise_sentence(shorten_text(label.text, 2000)))] if label.text else []
    place = context(format_place(run_view.run.id, run_view.page_url))
    return _build_message(run_view, format_run_line(run_view), [heading, *result, place])


def render_remark(run_view: SlackRunView, remark: Remark) -> Message:
    """Render a question or an answer for the thread; it mentions who waits for it."""
    run, remarks = run_view.run, run_view.discussion.remarks
    asked = [one.person for one in remarks if not one.is_answer and one.at <= remark.at]
    awaited = asked[-1] if remark.is_answer else get_answerer(run)
    user = run_view.slack_users.get(awaited, "")
    who = f"{run_view.get_person_name(remark.person)} {remark.verb}"
    title = f"Run {run.id} · {who} about {format_title_with_host(run)}"
    head = [*([user_mention(user), " "] if user else []), bold(f"{title}:")]
    blocks = [rich_text(rich_text_section(*head), quote_with_links(remark.text))]
    is_open = run_view.discussion.has_open_question and run.state is State.PENDING
    if is_open and not remark.is_answer:
        blocks.append(actions(f"remark-{remark.entry_number}", run_buttons.ANSWER.build(run)))
    return _build_message(run_view, f"{title}: {remark.text}", blocks)


def is_output_cut(run_view: SlackRunView) -> bool:
    """Return whether a message is too short for the output of the run."""
    outputs = [record for record in run_view.step_records if record.output.strip()]
    long = any(
        len(escape_control(record.output.strip())) > _MAX_OUTPUT_LENGTH for record in outputs
    )
    return long or len(outputs) > _MAX_OUTPUTS


def format_full_output(run_view: SlackRunView) -> str:
    """Return the full output of all steps as plain text."""
    return "\n".join(
        f"# {escape_to_one_line(_format_output_title(run_view.run, record))}\n"
        f"{escape_control(record.output.rstrip())}\n"
        for record in run_view.step_records
        if record.output.strip()
    )


def render_follow_up(run_view: SlackRunView) -> Message:
    """Render the result of work that continued on the host after the run."""
    run = run_view.run
    mention = [user_mention(run_view.requester), " "] if run_view.requester else []
    summary = run.report.summary if run.report else ""
    is_healthy = run.report is not None and run.report.healthy
    icon = emoji("white_check_mark" if is_healthy else "warning")
    result = "Finished" if is_healthy else "Finished, needs attention"
    title = f"Run {run.id} · {result}: {format_title_with_host(run)}"
    blocks = [
        paragraph(*mention, icon, " ", bold(title), f" – {shorten_text(summary, 1000)}"),
        *_render_run_report(run),
    ]
    return _build_message(run_view, f"{title} – {summary}", blocks)


def _render_head(run_view: SlackRunView) -> list[Block]:
    run = run_view.run
    requester = escape_mrkdwn(run_view.requester_name)
    facts = f"{escape_mrkdwn(run_view.area_title)} · requested by {requester}"
    facts += f" · {format_date(run.requested_at)}"
    if run.origin.source != "slack":
        facts += f" · {describe_source(run.origin.source) or escape_mrkdwn(run.origin.source)}"
    return [header(format_coloured_heading(run_view)), context(facts)]


def format_coloured_heading(run_view: SlackRunView) -> str:
    """Return the heading after its colour: `🟡 Run 12 · Needs approval: abusers clear lb1`."""
    return f"{TONE_EMOJI[run_view.display.tone]} {format_heading(run_view)}"


def _render_request(run_view: SlackRunView, *, undecided: PlanPart) -> list[Block]:
    """Render what is requested and why. undecided: how much of a plan that needs a decision."""
    run = run_view.run
    blocks: list[Block] = []
    if len(format_coloured_heading(run_view)) > MAX_HEADER_LENGTH:
        blocks.append(paragraph(bold(run.title)))
    if run.reason:
        # No person has read what an agent wrote: it gets no links.
        quoted = quote if run.origin.agent is not None else quote_with_links
        blocks.append(rich_text(quoted(run.reason)))
    if run.reason and run.origin.agent is not None:
        blocks.append(context(f"Reason {WRITTEN_BY_AGENT}"))
    if run_view.view.counter_proposal:
        blocks.append(_render_counter_proposal(run_view.view.counter_proposal))
    if run_view.view.schedule:
        blocks.append(render_schedule(run_view.view.schedule))
    if run.plan and run.state is not State.NO_CHANGES:
        is_decided = run.state not in _STATES_WITH_COMMANDS
        blocks += render_plan(
            run.plan,
            run_view.step_records,
            state_label=run_view.view.plan_state_label,
            shown=PlanPart.STEPS if is_decided else undecided,
        )
    return blocks


def _render_counter_proposal(proposal: CounterProposal) -> Block:
    """Render what an approver changed in the request, and why."""
    changes = [
        [bold(f"{name}: "), code(shorten_text(f"{old or '(empty)'} → {new or '(empty)'}", 300))]
        for name, (old, new) in proposal.changed_values.items()
    ]
    reason = [rich_text_section(bold("Reason: "), proposal.reason)]
    return rich_text(
        rich_text_section(bold("Changed values")),
        bullet_list(*changes),
        *(reason if proposal.reason else []),
    )


def _render_run_report(run: Run) -> list[Block]:
    return render_report(run.report) if run.report else []


def _render_status(run_view: SlackRunView) -> list[Block]:
    """Render what is to happen, or what happened, after the state in the heading."""
    label = build_run_label(run_view)
    if not label.text:
        return []
    text = capitalise_sentence(shorten_text(label.text, 2000))
    parts = [emoji(label.icon), " ", text]
    if run_view.run.state is State.PENDING:
        parts += _render_approvers(run_view)
    if run_view.run.state is State.COUNTER_PROPOSED and run_view.requester:
        parts += [" – ", user_mention(run_view.requester)]
    blocks = [paragraph(*parts)]
    if probation := run_view.view.open_probation:
        blocks.append(paragraph(emoji("hourglass_flowing_sand"), f" {probation.sentence}"))
    return blocks


def _render_approvers(run_view: SlackRunView) -> list[Inline]:
    """Mention the people who can approve, so that Slack notifies them."""
    decisions = run_view.approvals
    decided = {
        run_view.get_person_name(who)
        for decision in decisions
        for who in (decision.person, decision.on_behalf_of)
        if who
    }
    open_approvers = [
        approver
        for approver in run_view.approvers
        if approver.name not in decided and approver.on_behalf_of not in decided
    ]
    if not open_approvers:
        return [" – no one can approve"]
    parts: list[Inline] = [" – "]
    on_duty = [one for one in open_approvers if one.is_on_duty or one.is_assigned]
    # Until approvers are reminded, only who is on duty is notified.
    called = open_approvers if run_view.run.reminded_at or not on_duty else on_duty
    for approver in open_approvers[:_MAX_MENTIONS]:
        parts += [
            user_mention(approver.slack_user)
            if approver.slack_user and approver in called
            else approver.name
        ]
        parts += [" (on duty)"] if approver.is_on_duty else []
        parts += [f" on behalf of {approver.on_behalf_of}"] if approver.on_behalf_of else []
        parts += [" (assigned)"] if approver.is_assigned else []
        parts += [" "]
    more = len(open_approvers) - _MAX_MENTIONS
    return [*parts, f"and {more} more"] if more > 0 else parts[:-1]


def _render_discussion(run_view: SlackRunView) -> list[Block]:
    """Render the newest questions and answers, and to whom the run is assigned."""
    remarks = run_view.discussion.remarks
    lines = [
        [
            bold(f"{run_view.get_person_name(remark.person)} {remark.verb}: "),
            shorten_text(remark.text, 300),
        ]
        for remark in remarks[-_MAX_REMARKS:]
    ]
    if len(remarks) > _MAX_REMARKS:
        earlier = format_count(len(remarks) - _MAX_REMARKS, "earlier question or answer")
        lines.insert(0, [f"{earlier}: see the thread"])
    assignment = run_view.discussion.assignment
    if assignment and run_view.run.state is State.PENDING:
        assignee = run_view.get_person_name(assignment.assignee)
        by = f" by {run_view.get_person_name(assignment.assigned_by)}"
        reason = f": {shorten_text(assignment.reason, 300)}" if assignment.reason else ""
        lines.append([bold(f"Assigned to {assignee}"), f"{by}{reason}"])
    return [rich_text(bullet_list(*lines))] if lines else []


def _render_facts(run_view: SlackRunView) -> list[Block]:
    """Render who approved, until when it waits, and where the rest is."""
    run = run_view.run
    facts: list[str] = []
    if run.state in _STATES_WITH_COMMANDS and run.plan and run.plan.is_reversible:
        facts.append("can be undone")
    if run.expires_at and run.state in {State.PENDING, State.QUEUED}:
        facts.append(f"expires {format_date(run.expires_at)}")
    view = run_view.view
    if hold := ". ".join(
        filter(None, (view.freeze_after_approval, view.expiry_before_freeze_ends))
    ):
        facts.append(f"on hold after approval: {escape_sentence(hold)}")
    if run.ended_at:
        facts.append(f"ended {format_date(run.ended_at)}")
    facts.append(f"<{run_view.page_url}|Open>" if run_view.page_url else f"/keyturn run {run.id}")
    approvals = [format_approvals(run_view)] if run_view.approvals else []
    grants: list[Block] = []
    if run_view.used_grant and run.grant_id:
        grant = (
            f"Standing grant {run_view.used_grant.grant_id} by {run_view.used_grant.granted_by}"
        )
        left = f"{run_view.used_grant.uses_left} of {run_view.used_grant.per_hour} left this hour"
        grants.append(context(escape_mrkdwn(f"{grant}: {left}")))
    return [*grants, context(*approvals, " · ".join(facts))]


def _has_undo(run_view: SlackRunView) -> bool:
    run = run_view.run
    is_reversible = run.plan is not None and run.plan.is_reversible
    return run.undo_of is None and is_reversible and run_view.view.has_executed_steps


def format_approvals(run_view: SlackRunView) -> str:
    """Return who approved, when and why, as mrkdwn."""
    decisions = [
        f"{escape_mrkdwn(describe_decider(decision, run_view.get_person_name))} · "
        f"{format_date(decision.decided_at)}"
        + (f" to start {format_date(decision.start_at)}" if decision.start_at else "")
        + (f" · {escape_mrkdwn(shorten_text(decision.reason, 200))}" if decision.reason else "")
        for decision in run_view.approvals
    ]
    return "Approved by " + ", ".join(decisions)


def _build_buttons(run_view: SlackRunView) -> list[Element]:
    """Return the buttons of a card. Keyturn checks who may use one when it is pressed."""
    run = run_view.run
    if run.state in _STATES_WITH_COMMANDS:
        return _build_decision_buttons(run_view)
    is_watchable = bool(run.plan) and run.state in _WATCHABLE_STATES
    buttons: list[Element] = []
    if starts_later(run):
        buttons.append(run_buttons.HOLD.build(run))
    if run.state is State.QUEUED:
        buttons.append(run_buttons.WITHDRAW.build(run))
    if run.state in _STOPPABLE_STATES and run.plan:
        text = "Nothing more is sent for this run. A step under way ends first."
        dialog = confirm_dialog(f"Stop run {run.id}?", text, yes="Stop")
        buttons.append(run_buttons.STOP.build(run) | {"confirm": dialog})
    if run.state is State.QUEUED and is_watchable and run.step_count:
        menu = run_buttons.build_menu(run, run_buttons.WATCH, run_buttons.DETAILS)
        return [*buttons, menu]
    if is_watchable:
        buttons.append(run_buttons.WATCH.build(run))
    buttons += _build_ended_buttons(run_view)
    # The steps of a schedule were what it would have done when it was requested.
    if run.step_count and run.timing is None and run.state is not State.NO_CHANGES:
        buttons.append(run_buttons.DETAILS.build(run))
    return buttons


def _build_ended_buttons(run_view: SlackRunView) -> list[Element]:
    """Return the buttons with which a run that has ended is undone or requested again."""
    run = run_view.run
    buttons: list[Element] = []
    if run.state is State.SUCCEEDED and _has_undo(run_view):
        buttons.append(run_buttons.UNDO.build(run))
    if run.is_ended and run.plan and resubmit.can_be_planned_again(run):
        buttons.append(run_buttons.REPLAN.build(run))
    if run.state in _RESUBMITTABLE_STATES and not resubmit.get_resubmit_refusal(run):
        buttons.append(run_buttons.RESUBMIT.build(run, value=str(run.id)))
    return buttons


def _build_decision_buttons(run_view: SlackRunView) -> list[Element]:
    """Return the buttons of a run that waits for people: the card shows all its commands."""
    run = run_view.run
    if run.state is State.PENDING:
        question = run_buttons.QUESTION
        is_asked = run_view.discussion.has_open_question
        return [
            *build_approve_buttons(run_view),
            run_buttons.DENY.build(run),
            (run_buttons.ANSWER if is_asked else question).build(run),
            run_buttons.build_menu(
                run,
                *([run_buttons.APPROVE_LATER] if _can_start_later(run) else []),
                *([question] if is_asked else []),
                run_buttons.REASSIGN,
                run_buttons.WITHDRAW,
                run_buttons.DETAILS,
            ),
        ]
    others = [one.build(run) for one in (run_buttons.WITHDRAW, run_buttons.DETAILS)]
    if run.state is State.COUNTER_PROPOSED and run.plan is not None and can_show_plan(run.plan):
        return [run_buttons.ACCEPT.build(run) | {"style": "primary"}, *others]
    return others


def _can_start_later(run: Run) -> bool:
    """Return whether the run can be approved in chat for a time."""
    needs = run.requirements
    is_decided_here = not needs.requires_signature and not needs.requires_second_factor
    is_shown = run.plan is not None and can_show_plan(run.plan)
    return is_decided_here and is_shown and run.timing is None


def build_approve_buttons(run_view: SlackRunView) -> list[Element]:
    """Return the button that approves or signs the plan; none if its page is needed."""
    run = run_view.run
    needs = run.requirements
    if run.plan is None or not can_show_plan(run.plan):
        return []
    if needs.requires_signature:
        return build_sign_buttons(run_view)
    if needs.requires_second_factor:
        return []
    text = "Approve schedule" if run.timing else "Approve"
    if run.requirements.requires_reason:
        return [run_buttons.APPROVE_WITH_REASON.build(run, text=f"{text}…") | {"style": "primary"}]
    approve = run_buttons.APPROVE.build(run, text=text) | {"style": "primary"}
    if not run.plan.is_reversible:
        approve["confirm"] = build_irreversible_dialog(run.plan, yes=text)
    return [approve]


def build_sign_buttons(run_view: SlackRunView) -> list[Element]:
    """Return the button that opens the page on which a plan is signed; none without pages."""
    run, page = run_view.run, run_view.page_url
    return [run_buttons.SIGN.build_link(run, url=f"{page}/sign")] if page else []


def build_irreversible_dialog(proposal: ResolvedPlan, *, yes: str) -> Element:
    """Return the confirmation of a plan with steps that cannot be undone."""
    first, *more = [step for step in proposal.steps if step.undo is None]
    text = f"“{shorten_text(first.title, 100)}” cannot be undone: {first.no_undo_reason}"
    suffix = f" (and {format_count(len(more), 'more step')})" if more else ""
    text = shorten_text(text, 300 - len(suffix)) + suffix
    return confirm_dialog("This cannot be undone", text, yes=yes)


def render_page_hint(run_view: SlackRunView, text: str) -> Block:
    """Render a text that ends with a link to the page of the run."""
    page = link(run_view.page_url, "its page") if run_view.page_url else "its page"
    return paragraph(f"{text} ", page, ".")


def _render_break_glass(run_view: SlackRunView) -> list[Block]:
    """Render that break-glass was used for the run, or requested."""
    break_glass = run_view.break_glass
    if break_glass is None:
        return []
    who = run_view.get_person_name(break_glass.person)
    if break_glass.activated_at is None:
        if run_view.run.state not in {State.PLANNING, State.PENDING, State.QUEUED}:
            return []
        page = [" ", link(run_view.page_url, "Open its page")] if run_view.page_url else []
        text = f"{who} requests break-glass, and confirms it on its page with a second factor."
        return [paragraph(emoji("rotating_light"), " ", text, *page)]
    if break_glass.review_due is None:
        reviewer = run_view.get_person_name(break_glass.reviewer)
        review = [f"Reviewed by {reviewer}: {break_glass.review}"]
    else:
        due = date_element(to_datetime(break_glass.review_due))
        command = code(f"{COMMAND} review {break_glass.run} FINDINGS")
        review = ["Another person must review it by ", due, ": ", command, "."]
    reason = [f"{break_glass.reason} – "] if break_glass.reason else []
    text = [bold(f"{who} {break_glass.deed}: "), *reason, *review]
    return [paragraph(emoji("rotating_light"), " ", *text)]


def _format_output_title(run: Run, record: StepRecord) -> str:
    steps = run.plan.steps if run.plan else ()
    title = steps[record.step_number - 1].title if record.step_number <= len(steps) else ""
    return f"{record.step_number}. {title}: output of {run.host}"


def _truncate_output(output: str) -> str:
    """Return the end of an output, where errors usually are."""
    text = escape_control(output.strip())
    left = len(text) - _MAX_OUTPUT_LENGTH
    return f"… {format_count(left, 'character')} omitted\n{text[left:]}" if left > 0 else text
