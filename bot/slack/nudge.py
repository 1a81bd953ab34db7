"""A nudge: what is said in a card's thread to those whose approval is still waited for. Pure."""

from bot.run import State
from bot.slack.blocks import (
    Element,
    Message,
    bold,
    context,
    emoji,
    line,
    notification,
    rich,
    when,
    words,
)
from bot.slack.story import Approver, Story

_MOST_CALLED = 10


def nudges(story: Story) -> dict[str, Message]:
    """Return what is due to be said, by a name under which it is said once."""
    run = story.run
    if run.state is not State.WAITING:
        return {}
    said: dict[str, Message] = {}
    if run.escalated is not None:
        said["escalation"] = _nudge(story, f"Nobody has decided, so by now {story.whose} may")
    elif run.reminded is not None:
        said[f"reminder {run.reminded}"] = _nudge(story, "This still waits for your approval")
    return said


def _nudge(story: Story, said: str) -> Message:
    run = story.run
    parts: list[Element] = [emoji("bell"), words(" ")]
    # Their telephones ring for the copy of the card that they get, and once is enough.
    names = [approver.name for approver in waited_for(story)[:_MOST_CALLED]]
    parts.append(bold(f"{', '.join(names)} "))
    parts.append(words(f"{said}: {run.title}"))
    since = f"waits since {when(run.shown or run.asked)}"
    until = f" · until {when(run.expires)}" if run.expires else ""
    return Message(
        notification(f"{said}: {run.title}"), [rich(line(*parts)), context(since + until)]
    )


def waited_for(story: Story) -> list[Approver]:
    """Return those who have not voted yet, and could."""
    voted = {story.name(vote.person) for vote in story.yes_votes}
    return [approver for approver in story.approvers if approver.name not in voted]
