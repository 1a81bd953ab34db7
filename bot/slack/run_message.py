"""The card of a run: one message from the request to its end. Pure.

The same story always draws the same card, and only a card that shows all of a plan can approve it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import Run, State, StepRecord, Vote, describe_proposals
from bot.model.run_states import STEPS
from bot.model.text import counted, escape_control, escape_to_one_line
from bot.slack.blocks import (
    MOST_HEADER,
    Block,
    Element,
    Message,
    actions,
    bold,
    bullets,
    button,
    code,
    confirmation,
    context,
    emoji,
    header,
    line,
    link,
    mrkdwn,
    notification,
    person,
    preformatted,
    quote,
    rich,
    shortened,
    when,
    words,
)
from bot.slack.labels import in_one_line, verdict
from bot.slack.run_facts import Story
from bot.workflow import resubmit
from bot.workflow.schedule_facts import ScheduleFacts
from runbooks import Report, Table

# Slack folds long messages away; what is approved here must be seen here, and at a glance.
_MOST_STEPS = 12
_MOST_CHARACTERS = 6000
_MOST_COMMAND = 2500
_MOST_LISTED = 20


def fits_in_message(proposal: ResolvedPlan) -> bool:
    """Return whether chat can show all of the plan; else nobody may approve it there."""
    commands = [str(step.do) for step in proposal.steps]
    return (
        len(commands) <= _MOST_STEPS
        and max(map(len, commands), default=0) <= _MOST_COMMAND
        and sum(map(len, _texts(proposal))) <= _MOST_CHARACTERS
    )


def render_plan(proposal: ResolvedPlan, records: Sequence[StepRecord]) -> list[Block]:
    """Draw all of the plan, or, if it does not fit, a list of what it does."""
    became = {record.n: record for record in records}
    found = line(bold("Found: "), words(shortened(proposal.because, 1000)))
    if not fits_in_message(proposal):
        return [rich(found, *_listed(proposal, became))]
    parts = [found]
    for numbers in _alike(proposal.steps, became):
        parts += _step(numbers, proposal.steps, became.get(numbers[0]))
    if proposal.notes:
        parts.append(bullets(*([words(note)] for note in proposal.notes)))
    return [rich(*parts)]


def draw_schedule(facts: ScheduleFacts) -> Block:
    """Draw what a schedule does and when, above the steps that it would do now."""
    return rich(*(line(bold(f"{label}: "), words(text)) for label, text in facts.rows))


def _alike(
    steps: Sequence[PlannedStep], became: Mapping[int, StepRecord]
) -> Sequence[Sequence[int]]:
    """Return the numbers of steps that are to be drawn as one: the same on one host after another,
    and as far with each."""

    def all_but_host(n: int) -> object:
        record = became.get(n)
        return replace(steps[n - 1], host="", fingerprint=""), record and record.state

    numbers = range(1, len(steps) + 1)
    if len({step.host for step in steps}) < len(steps):
        return [[n] for n in numbers]
    return [list(group) for _, group in groupby(numbers, key=all_but_host)]


def _step(
    numbers: Sequence[int], steps: Sequence[PlannedStep], record: StepRecord | None
) -> list[Element]:
    """Draw steps that differ in their hosts alone."""
    step = steps[numbers[0] - 1]
    hosts = ", ".join(steps[n - 1].host for n in numbers)
    which = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"
    return [line(*_title(which, step, hosts, record)), preformatted(str(step.do)), *_undo(step)]


def _title(which: str, step: PlannedStep, hosts: str, record: StepRecord | None) -> list[Element]:
    parts = [bold(f"{which}. {step.title}"), words(f" on {hosts}")]
    if step.before or step.after:
        parts += [
            words(": "),
            code(step.before or "nothing"),
            words(" → "),
            code(step.after or "nothing"),
        ]
    return parts + ([words(f" – {STEPS[record.state].label.lower()}")] if record else [])


def _undo(step: PlannedStep) -> list[Element]:
    if step.undo is None:
        return [line(bold("Cannot be undone: "), words(step.no_undo))]
    undo = str(step.undo)
    if "\n" in undo:
        return [line(words("Undo:")), preformatted(undo)]
    return [line(words("Undo: "), code(undo))]


def _listed(proposal: ResolvedPlan, became: Mapping[int, StepRecord]) -> list[Element]:
    steps = list(enumerate(proposal.steps, start=1))
    titles = [
        [
            words(shortened(f"{n}. {step.title} on {step.host}", 150)),
            *([words(f" – {STEPS[became[n].state].label.lower()}")] if n in became else []),
        ]
        for n, step in steps[:_MOST_LISTED]
    ]
    if len(steps) > _MOST_LISTED:
        titles.append([words(f"… and {len(steps) - _MOST_LISTED} more")])
    return [bullets(*titles)]


def _texts(proposal: ResolvedPlan) -> list[str]:
    texts = [proposal.because, *proposal.notes, *proposal.keys]
    for step in proposal.steps:
        undo = str(step.undo) if step.undo is not None else step.no_undo
        texts += [step.title, step.host, str(step.do), undo, step.before, step.after]
    return texts


_MOST_FINDINGS = 20
_MOST_ROWS = 40
_MOST_TABLE = 3000


def render_report(report: Report) -> list[Block]:
    parts = [*_findings(report.findings)] if report.findings else []
    if report.table and report.table.rows:
        parts.append(preformatted(align_table(report.table)))
    return [rich(*parts)] if parts else []


def align_table(table: Table) -> str:
    """Return the columns below each other; what is too much is counted, not hidden."""
    rows = [[escape_to_one_line(cell) for cell in row] for row in [table.columns, *table.rows]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    shown, room = 0, _MOST_TABLE
    while shown < min(len(lines), _MOST_ROWS) and len(lines[shown]) < room:
        room -= len(lines[shown]) + 1
        shown += 1
    left = len(lines) - shown
    return "\n".join(lines[:shown] + ([f"… and {counted(left, 'more row')}"] if left else []))


def _findings(findings: Sequence[str]) -> list[Block]:
    items = [[words(shortened(finding, 300))] for finding in findings[:_MOST_FINDINGS]]
    if len(findings) > _MOST_FINDINGS:
        items.append([words(f"… and {len(findings) - _MOST_FINDINGS} more")])
    return [bullets(*items)]


APPROVE, DENY = "approve", "deny"
ACCEPT, WITHDRAW = "accept", "withdraw"
# Opens the form of a run that came to nothing, with its values.
AGAIN = "again"
_CAME_TO_NOTHING = frozenset(
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
_MOST_MENTIONED = 5
_MOST_OUTPUT = 1500
_MOST_OUTPUTS = 5


def render_card(story: Story, *, buttons: bool = True) -> Message:
    """Draw the run as it is now. buttons: False where nobody could click them, as in an answer
    to a command."""
    run = story.run
    blocks = [*_head(story), *_glass(story), *_plan(story), rich(_standing(story)), *_report(run)]
    if run.state is State.WAITING and run.proposal and not fits_in_message(run.proposal):
        blocks.append(_on_its_page(story, "is too long to be shown whole in chat"))
    elif run.state is State.WAITING and run.terms.step_up:
        blocks.append(_on_its_page(story, "takes a second factor, which chat does not have"))
    elif run.state is State.WAITING and run.terms.reason:
        blocks.append(_with_a_reason(story))
    if story.proposals:
        told = describe_proposals(story.proposals)
        blocks.append(rich(line(emoji("speech_balloon"), words(f" {told}"))))
    blocks += _foot(story)
    if run.state is State.WAITING and buttons:
        blocks.append(_decision(run))
    if run.state is State.OFFERED and buttons:
        blocks.append(_answer(run))
    if run.state in _CAME_TO_NOTHING and buttons and not resubmit.why_not_resubmit(run):
        blocks.append(_once_more(run))
    return Message(notification(in_one_line(story)), blocks)


def render_settled(story: Story) -> Message:
    """Draw what a copy says once there is nothing to decide any more: by whom, and when."""
    run = story.run
    standing = _standing(story)
    if not run.over and run.state is not State.OFFERED:
        # How it goes on is told where the card stands; a copy is not drawn anew for each step.
        standing = line(emoji("key"), words(" "), bold("Decided"), words(": it takes its course"))
    title = in_one_line(story) if run.over else f"Decided: {run.title} ({story.area})"
    return Message(notification(title), [*_head(story), rich(standing), *_foot(story)])


def render_result(story: Story) -> Message:
    """Draw how the run ended, for its thread; the only message that calls its asker."""
    run = story.run
    seen = verdict(story)
    asker = [person(story.asker), words(" ")] if story.asker else []
    parts = [line(*asker, emoji(seen.icon), words(" "), bold(seen.label), words(seen.rest))]
    spoken = [record for record in story.steps if record.output.strip()]
    for record in spoken[:_MOST_OUTPUTS]:
        parts += [line(words(_about(run, record))), preformatted(_end_of(record.output))]
    if is_output_cut(story):
        page = [words(", and on "), link(story.page, "its page")] if story.page else []
        parts.append(line(words("All of it is in the file below"), *page, words(".")))
    return Message(notification(in_one_line(story)), [rich(*parts)])


def is_output_cut(story: Story) -> bool:
    """Return whether hosts said more than a message holds."""
    spoken = [record for record in story.steps if record.output.strip()]
    long = any(len(escape_control(record.output.strip())) > _MOST_OUTPUT for record in spoken)
    return long or len(spoken) > _MOST_OUTPUTS


def full_output(story: Story) -> str:
    """Return all that the hosts said, step by step, as a plain text."""
    return "\n".join(
        f"# {escape_to_one_line(_about(story.run, record))}\n"
        f"{escape_control(record.output.rstrip())}\n"
        for record in story.steps
        if record.output.strip()
    )


def render_follow_up(story: Story) -> Message:
    """Draw how the work ended that the run had started and that went on after it."""
    run = story.run
    asker = [person(story.asker), words(" ")] if story.asker else []
    told = run.report.summary if run.report else ""
    well = run.report is not None and run.report.healthy
    sign = emoji("white_check_mark" if well else "warning")
    over = "It is over" if well else "It is over, and needs attention"
    said = [line(*asker, sign, words(" "), bold(f"{over}: "), words(shortened(told, 1000)))]
    blocks = [rich(*said), *_report(run)]
    return Message(notification(f"Run {run.id}, {run.title}: {over}: {told}"), blocks)


# How what did not come from chat came in.
_THROUGH = {
    "web": "on the web",
    "api": "through the API",
    "cli": "on the command line",
    "schedule": "by the clock",
}


def _head(story: Story) -> list[Block]:
    run = story.run
    title = f"{run.title} · {story.area}"
    asked = f"run {run.id} · asked by {mrkdwn(story.name(run.asked_by))} · {when(run.asked)}"
    if run.origin.door != "slack":
        asked += f" · {_THROUGH.get(run.origin.door, mrkdwn(run.origin.door))}"
    return [header(title), context(asked)]


def _plan(story: Story) -> list[Block]:
    run = story.run
    blocks: list[Block] = []
    if len(f"{run.title} · {story.area}") > MOST_HEADER:
        blocks.append(rich(line(bold(run.title))))
    if run.reason:
        blocks.append(rich(quote(run.reason)))
    if story.schedule:
        blocks.append(draw_schedule(story.schedule))
    if run.proposal and run.state is not State.UNCHANGED:
        blocks += render_plan(run.proposal, story.steps)
    return blocks


def _report(run: Run) -> list[Block]:
    return render_report(run.report) if run.report else []


def _standing(story: Story) -> Element:
    seen = verdict(story)
    said = shortened(seen.rest, 2000)
    parts = [emoji(seen.icon), words(" "), bold(seen.label), words(said)]
    if story.run.state is State.WAITING:
        parts += _approvers(story)
    if story.run.state is State.OFFERED and story.asker:
        parts += [words(" – "), person(story.asker)]
    return line(*parts)


def _approvers(story: Story) -> list[Element]:
    """Name everybody who could turn a key, so that they hear of it."""
    votes = story.yes_votes
    turned = {story.name(who) for vote in votes for who in (vote.person, vote.instead_of) if who}
    able = [
        approver
        for approver in story.approvers
        if approver.name not in turned and approver.instead_of not in turned
    ]
    if not able:
        return [words(" – nobody can give it")]
    parts: list[Element] = [words(" – ")]
    for approver in able[:_MOST_MENTIONED]:
        parts += [person(approver.user) if approver.user else words(approver.name)]
        parts += [words(f" for {approver.instead_of}")] if approver.instead_of else []
        parts += [words(" ")]
    more = len(able) - _MOST_MENTIONED
    return [*parts, words(f"and {more} more")] if more > 0 else parts[:-1]


def _foot(story: Story) -> list[Block]:
    """Say who approved, and the facts that tell this run from any other."""
    run = story.run
    facts: list[str] = []
    if run.digest:
        facts.append(f"plan {run.short_digest}")
    if run.expires and run.state in {State.WAITING, State.READY}:
        verb = "approve" if run.state is State.WAITING else "starts"
        facts.append(f"{verb} until {when(run.expires)}")
    if story.frozen:
        facts.append(f"once approved it waits: {mrkdwn(story.frozen)}")
    if run.ended:
        facts.append(when(run.ended))
        # Chat keeps how far the log was: a witness that no database administrator can edit.
        facts.append(story.sealed)
    if run.state is State.SUCCEEDED and _can_be_undone(run):
        facts.append(f"/keyturn undo {run.id}")
    facts.append(f"<{story.page}|details>" if story.page else f"/keyturn run {run.id}")
    facts = [fact for fact in facts if fact]
    approved = [context(_approved(story))] if story.yes_votes else []
    if story.granted and run.grant:
        by = f"By grant {story.granted.number} of {story.granted.giver}"
        left = f"{story.granted.left} of {story.granted.an_hour} left this hour"
        approved.append(context(mrkdwn(f"{by}: {left}")))
    return [*approved, context(" · ".join(facts))]


def _can_be_undone(run: Run) -> bool:
    return run.undo_of is None and run.proposal is not None and run.proposal.reversible


def _approved(story: Story) -> str:
    votes = [
        f"{mrkdwn(_voter(story, vote))} · {when(vote.at)}"
        + (f" · {mrkdwn(shortened(vote.reason, 200))}" if vote.reason else "")
        for vote in story.yes_votes
    ]
    return "Approved by " + ", ".join(votes)


def _voter(story: Story, vote: Vote) -> str:
    name = story.name(vote.person)
    return f"{name} for {story.name(vote.instead_of)}" if vote.instead_of else name


def _answer(run: Run) -> Block:
    """Let the asker take over the values that an approver proposes, or decline them."""
    value = f"{run.id}:{run.short_digest}"
    block_id = f"run-{run.id}-{run.version}"
    decline = button(
        "Decline", action=WITHDRAW, value=value, label=f"Decline run {run.id}: {run.title}"
    )
    if run.proposal is None or not fits_in_message(run.proposal):
        return actions(block_id, decline)
    accept = button(
        "Accept", action=ACCEPT, value=value, label=f"Accept run {run.id}: {run.title}"
    ) | {"style": "primary"}
    return actions(block_id, accept, decline)


def _once_more(run: Run) -> Block:
    label = f"Ask again for run {run.id}: {run.title}"
    ask = button("Ask Again", action=AGAIN, value=str(run.id), label=label)
    return actions(f"run-{run.id}-{run.version}", ask)


def _decision(run: Run) -> Block:
    value = f"{run.id}:{run.short_digest}"
    deny = button("Deny", action=DENY, value=value, label=f"Deny run {run.id}: {run.title}")
    block_id = f"run-{run.id}-{run.version}"
    here = not (run.terms.step_up or run.terms.reason)
    if run.proposal is None or not fits_in_message(run.proposal) or not here:
        return actions(block_id, deny)
    verb = _verb(run)
    approve = button(
        f"Approve {verb}",
        action=APPROVE,
        value=value,
        label=f"Approve run {run.id}: {run.title}",
    ) | {"style": "primary"}
    if not run.proposal.reversible:
        approve["confirm"] = confirmation(
            "This cannot be undone",
            f"{run.title}: parts of it cannot be undone. Plan {run.short_digest}.",
            yes=f"Approve {verb}",
        )
    return actions(block_id, approve, deny)


def _on_its_page(story: Story, why: str) -> Block:
    """Say where a plan is approved that cannot be approved in chat."""
    said = words(f"This plan {why}, so it is approved on ")
    if not story.page:
        return rich(line(said, words("its web page.")))
    return rich(line(said, link(story.page, "its page"), words(".")))


def _with_a_reason(story: Story) -> Block:
    """Say how a plan is approved whose approval takes a reason, which a button cannot give."""
    run = story.run
    typed = f"/keyturn approve {run.id} {run.short_digest} because REASON"
    on = [words(", or on "), link(story.page, "its page")] if story.page else []
    said = words("The rules want to know why it is approved: type ")
    return rich(line(said, code(typed), *on, words(".")))


def _glass(story: Story) -> list[Block]:
    """Say that the glass was broken for it, or that its asker means to."""
    pane = story.glass
    if pane is None:
        return []
    who = story.name(pane.person)
    if pane.broken is None:
        if story.run.state not in {State.ASKED, State.WAITING, State.READY}:
            return []
        page = [words(" "), link(story.page, "Break it there")] if story.page else []
        told = words(f"{who} means to break the glass, on its page and with a second factor.")
        return [rich(line(emoji("rotating_light"), words(" "), told, *page))]
    if pane.reviewed is not None:
        after = f"Reviewed by {story.name(pane.reviewer)}: {pane.review}"
    else:
        after = f"Somebody else reviews it within a day: review {pane.run} and what they found."
    told = [bold(f"{who} broke the glass: "), words(f"{pane.reason} – {after}")]
    return [rich(line(emoji("rotating_light"), words(" "), *told))]


def _verb(run: Run) -> str:
    if run.timing is not None:
        return "schedule"
    return "Undo" if run.undo_of else shortened(run.words.split()[-1].capitalize(), 20)


def _about(run: Run, record: StepRecord) -> str:
    steps = run.proposal.steps if run.proposal else ()
    title = steps[record.n - 1].title if record.n <= len(steps) else ""
    return f"{record.n}. {title}: {run.host} said"


def _end_of(output: str) -> str:
    """Return the last part of what a host said: the end is where the trouble is."""
    said = escape_control(output.strip())
    left = len(said) - _MOST_OUTPUT
    return f"… {counted(left, 'character')} before this\n{said[left:]}" if left > 0 else said
