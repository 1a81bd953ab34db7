"""The card of a run: one message from the request to its end. Pure.

The same story always draws the same card, and only a card that shows all of a plan can approve it.
"""

from bot import again
from bot.run import Run, State, StepRecord, Vote, describe_proposals
from bot.slack import plans, reports
from bot.slack.blocks import (
    MOST_HEADER,
    Block,
    Element,
    Message,
    actions,
    bold,
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
from bot.slack.sentences import counted
from bot.slack.story import Story
from bot.slack.verdicts import in_one_line, verdict
from bot.visible import one_line, visible

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


def card(story: Story, *, buttons: bool = True) -> Message:
    """Draw the run as it is now. buttons: False where nobody could click them, as in an answer
    to a command."""
    run = story.run
    blocks = [*_head(story), *_glass(story), *_plan(story), rich(_standing(story)), *_report(run)]
    if run.state is State.WAITING and run.proposal and not plans.fits(run.proposal):
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
    if run.state in _CAME_TO_NOTHING and buttons and not again.why_not(run):
        blocks.append(_once_more(run))
    return Message(notification(in_one_line(story)), blocks)


def settled(story: Story) -> Message:
    """Draw what a copy says once there is nothing to decide any more: by whom, and when."""
    run = story.run
    standing = _standing(story)
    if not run.over and run.state is not State.OFFERED:
        # How it goes on is told where the card stands; a copy is not drawn anew for each step.
        standing = line(emoji("key"), words(" "), bold("Decided"), words(": it takes its course"))
    title = in_one_line(story) if run.over else f"Decided: {run.title} ({story.area})"
    return Message(notification(title), [*_head(story), rich(standing), *_foot(story)])


def result(story: Story) -> Message:
    """Draw how the run ended, for its thread; the only message that calls its asker."""
    run = story.run
    seen = verdict(story)
    asker = [person(story.asker), words(" ")] if story.asker else []
    parts = [line(*asker, emoji(seen.icon), words(" "), bold(seen.label), words(seen.rest))]
    spoken = [record for record in story.steps if record.output.strip()]
    for record in spoken[:_MOST_OUTPUTS]:
        parts += [line(words(_about(run, record))), preformatted(_end_of(record.output))]
    if cut(story):
        page = [words(", and on "), link(story.page, "its page")] if story.page else []
        parts.append(line(words("All of it is in the file below"), *page, words(".")))
    return Message(notification(in_one_line(story)), [rich(*parts)])


def cut(story: Story) -> bool:
    """Return whether hosts said more than a message holds."""
    spoken = [record for record in story.steps if record.output.strip()]
    long = any(len(visible(record.output.strip())) > _MOST_OUTPUT for record in spoken)
    return long or len(spoken) > _MOST_OUTPUTS


def whole_output(story: Story) -> str:
    """Return all that the hosts said, step by step, as a plain text."""
    return "\n".join(
        f"# {one_line(_about(story.run, record))}\n{visible(record.output.rstrip())}\n"
        for record in story.steps
        if record.output.strip()
    )


def followed(story: Story) -> Message:
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
        blocks.append(plans.draw_schedule(story.schedule))
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
    if run.proposal is None or not plans.fits(run.proposal):
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
    if run.proposal is None or not plans.fits(run.proposal) or not here:
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
    said = visible(output.strip())
    left = len(said) - _MOST_OUTPUT
    return f"… {counted(left, 'character')} before this\n{said[left:]}" if left > 0 else said
