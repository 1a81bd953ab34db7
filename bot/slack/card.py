"""The card of a run: one message from the request to its end. Pure.

The same story always draws the same card, and only a card that shows all of a plan can approve it.
"""

from bot.run import Run, State, StepRecord
from bot.slack import plans, reports
from bot.slack.blocks import (
    MOST_HEADER,
    Block,
    Element,
    Message,
    actions,
    bold,
    button,
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
from bot.slack.story import Story
from bot.slack.verdicts import in_one_line, verdict
from bot.visible import visible

APPROVE, DENY = "approve", "deny"
_MOST_MENTIONED = 5
_MOST_OUTPUT = 1500
_MOST_OUTPUTS = 5


def card(story: Story, *, buttons: bool = True) -> Message:
    """Draw the run as it is now. buttons: False where nobody could click them, as in an answer
    to a command."""
    run = story.run
    blocks = [*_head(story), *_plan(story), rich(_standing(story)), *_report(run)]
    if run.state is State.WAITING and run.proposal and not plans.fits(run.proposal):
        blocks.append(_too_long(story))
    blocks += _foot(story)
    if run.state is State.WAITING and buttons:
        blocks.append(_decision(run))
    return Message(notification(in_one_line(story)), blocks)


def result(story: Story) -> Message:
    """Draw how the run ended, for its thread; the only message that calls its asker."""
    run = story.run
    seen = verdict(story)
    asker = [person(story.asker), words(" ")] if story.asker else []
    parts = [line(*asker, emoji(seen.icon), words(" "), bold(seen.label), words(seen.rest))]
    spoken = [record for record in story.steps if record.output.strip()]
    for record in spoken[:_MOST_OUTPUTS]:
        parts += [line(words(_about(run, record))), preformatted(_end_of(record.output))]
    return Message(notification(in_one_line(story)), [rich(*parts)])


def _head(story: Story) -> list[Block]:
    run = story.run
    title = f"{run.title} · {story.area}"
    asked = f"run {run.id} · asked by {mrkdwn(story.name(run.asked_by))} · {when(run.asked)}"
    if run.origin.door != "slack":
        asked += f" · by way of {mrkdwn(run.origin.door)}"
    return [header(title), context(asked)]


def _plan(story: Story) -> list[Block]:
    run = story.run
    blocks: list[Block] = []
    if len(f"{run.title} · {story.area}") > MOST_HEADER:
        blocks.append(rich(line(bold(run.title))))
    if run.reason:
        blocks.append(rich(quote(run.reason)))
    if run.proposal and run.state is not State.UNCHANGED:
        blocks += plans.drawn(run.proposal, story.steps)
    return blocks


def _report(run: Run) -> list[Block]:
    return reports.drawn(run.report) if run.report else []


def _standing(story: Story) -> Element:
    seen = verdict(story)
    said = shortened(seen.rest, 2000)
    parts = [emoji(seen.icon), words(" "), bold(seen.label), words(said)]
    if story.run.state is State.WAITING:
        parts += _approvers(story)
    return line(*parts)


def _approvers(story: Story) -> list[Element]:
    """Name everybody who could turn a key, so that they hear of it."""
    voted = {story.name(vote.person) for vote in story.yes_votes}
    able = [approver for approver in story.approvers if approver.name not in voted]
    if not able:
        return [words(" – nobody can give it")]
    parts: list[Element] = [words(" – ")]
    for approver in able[:_MOST_MENTIONED]:
        parts += [person(approver.user) if approver.user else words(approver.name), words(" ")]
    more = len(able) - _MOST_MENTIONED
    return [*parts, words(f"and {more} more")] if more > 0 else parts[:-1]


def _foot(story: Story) -> list[Block]:
    """Say who approved, and the facts that tell this run from any other."""
    run = story.run
    facts: list[str] = []
    if run.digest:
        facts.append(f"plan {run.short_digest}")
    if run.expires and run.state in {State.WAITING, State.READY}:
        facts.append(f"until {when(run.expires)}")
    if run.ended:
        facts.append(when(run.ended))
        # Chat keeps how far the log was: a witness that no database administrator can edit.
        facts.append(story.sealed)
    if run.state is State.SUCCEEDED and _can_be_undone(run):
        facts.append(f"/keyturn undo {run.id}")
    facts.append(f"<{story.page}|details>" if story.page else f"/keyturn run {run.id}")
    facts = [fact for fact in facts if fact]
    approved = [context(_approved(story))] if story.yes_votes else []
    return [*approved, context(" · ".join(facts))]


def _can_be_undone(run: Run) -> bool:
    return run.undo_of is None and run.proposal is not None and run.proposal.reversible


def _approved(story: Story) -> str:
    votes = [
        f"{mrkdwn(story.name(vote.person))} · {when(vote.at)}"
        + (f" · {mrkdwn(shortened(vote.reason, 200))}" if vote.reason else "")
        for vote in story.yes_votes
    ]
    return "Approved by " + ", ".join(votes)


def _decision(run: Run) -> Block:
    value = f"{run.id}:{run.short_digest}"
    deny = button("Deny", action=DENY, value=value, label=f"Deny run {run.id}: {run.title}")
    block_id = f"run-{run.id}-{run.version}"
    if run.proposal is None or not plans.fits(run.proposal):
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
            f"{run.title}: parts of it cannot be taken back. Plan {run.short_digest}.",
            yes=f"Approve {verb}",
        )
    return actions(block_id, approve, deny)


def _too_long(story: Story) -> Block:
    """Say where a plan can be read and approved that does not fit into chat."""
    said = words("This plan is too long to be shown whole in chat, so it is approved on ")
    if not story.page:
        return rich(line(said, words("its web page.")))
    return rich(line(said, link(story.page, "its page"), words(".")))


def _verb(run: Run) -> str:
    return "Undo" if run.undo_of else shortened(run.words.split()[-1].capitalize(), 20)


def _about(run: Run, record: StepRecord) -> str:
    steps = run.proposal.steps if run.proposal else ()
    title = steps[record.n - 1].title if record.n <= len(steps) else ""
    return f"{record.n}. {title}: {run.host} said"


def _end_of(output: str) -> str:
    """Return the last part of what a host said: the end is where the trouble is."""
    said = visible(output.strip())
    left = len(said) - _MOST_OUTPUT
    return f"… {left} characters before this\n{said[left:]}" if left > 0 else said
