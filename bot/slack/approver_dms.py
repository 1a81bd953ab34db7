"""A nudge: what is said in a card's thread to those whose approval is still waited for. Pure."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from slack_sdk.errors import SlackApiError

from bot.db.outbox import PostedMessage
from bot.model.run import State
from bot.slack.actions import COPY
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
from bot.slack.client import GONE_MESSAGES, UNREACHABLE, Place, Voice, error_of, named
from bot.slack.run_facts import Approver, Story
from bot.slack.run_message import render_card, render_settled

log = logging.getLogger(__name__)

_MOST = 10

Remember = Callable[[Story, str, Place, Message], Awaitable[None]]


class Copies:
    def __init__(self, voice: Voice, remember: Remember) -> None:
        self._voice, self._remember = voice, remember

    async def bring_up_to_date(
        self, story: Story, place: Place | None, notices: Mapping[str, PostedMessage]
    ) -> None:
        """Send the copies that are due, and let none stand that says what is no longer so."""
        message = render_card(story) if story.run.state is State.WAITING else render_settled(story)
        sent = {slot: notice for slot, notice in notices.items() if slot.startswith(COPY)}
        for slot, notice in sent.items():
            if notice.ts and notice.digest != message.digest:
                await self._update(story, slot, Place(notice.channel, notice.ts), message)
        for user in list_due_copies(story, place):
            if f"{COPY}{user}" not in sent:
                await self._send(story, user, message)

    async def _send(self, story: Story, user: str, message: Message) -> None:
        slot = f"{COPY}{user}"
        try:
            place = await self._voice.tell(user, named(message, story, slot))
        except SlackApiError as refused:
            if error_of(refused) not in UNREACHABLE:
                raise
            log.warning("%s cannot be written to: %s", user, error_of(refused))
            place = Place("", "")
        await self._remember(story, slot, place, message)

    async def _update(self, story: Story, slot: str, place: Place, message: Message) -> None:
        try:
            await self._voice.update(place, message)
        except SlackApiError as refused:
            if error_of(refused) not in GONE_MESSAGES | UNREACHABLE:
                raise
            place = Place(place.channel, "")
        await self._remember(story, slot, place, message)


def list_due_copies(story: Story, place: Place | None) -> list[str]:
    """Return the users who are to have a copy of the card by now. place: where the card stands."""
    if story.run.state is not State.WAITING:
        return []
    unseen = place is None or place.channel.startswith("D")
    if story.run.reminded is None and not unseen:
        return []
    there = {story.asker if unseen else ""}
    users = [one.user for one in waited_for(story) if one.user and one.user not in there]
    return users[:_MOST]


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
