"""Alarms: what everybody concerned hears at once, whoever would rather they did not."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from slack_sdk.errors import SlackApiError

from bot.db.outbox import PostedMessage
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    Message,
    bold,
    code,
    context,
    emoji,
    line,
    link,
    notification,
    person,
    quote,
    rich,
    when,
    words,
)
from bot.slack.client import CLOSED_PLACES, UNREACHABLE, Place, Voice, error_of, named
from bot.slack.run_facts import Story

log = logging.getLogger(__name__)

Remember = Callable[[Story, str, Place, Message], Awaitable[None]]


class Alarms:
    """channel: C…, where alarms of every area go; "" if there is none."""

    def __init__(self, voice: Voice, remember: Remember, *, channel: str) -> None:
        self._voice, self._remember, self._channel = voice, remember, channel

    async def sound(self, story: Story, notices: Mapping[str, PostedMessage]) -> None:
        """Tell of broken glass: the area's channel, the one for alarms, and each owner, once."""
        if story.glass is None or story.glass.broken is None:
            return
        message = broken_glass(story)
        for channel in dict.fromkeys(filter(None, (story.channel, self._channel))):
            await self._post(story, channel, message, notices)
        for owner in story.owners:
            if owner.user and owner.user != story.asker:
                await self._tell(story, owner.user, message, notices)

    async def _tell(
        self, story: Story, user: str, message: Message, notices: Mapping[str, PostedMessage]
    ) -> None:
        slot = f"alarm {user}"
        if slot in notices:
            return
        try:
            place = await self._voice.tell(user, named(message, story, slot))
        except SlackApiError as refused:
            if error_of(refused) not in UNREACHABLE:
                raise
            # The others hear of it all the same.
            log.error("%s hears no alarm: %s", user, error_of(refused))
            place = Place("", "")
        await self._remember(story, slot, place, message)

    async def _post(
        self, story: Story, channel: str, message: Message, notices: Mapping[str, PostedMessage]
    ) -> None:
        slot = f"alarm {channel}"
        if slot in notices:
            return
        try:
            place = await self._voice.post(channel, named(message, story, slot))
        except SlackApiError as refused:
            if error_of(refused) not in CLOSED_PLACES:
                raise
            # The others hear of it all the same.
            log.error("no alarm in %s: %s", channel, error_of(refused))
            return
        await self._remember(story, slot, place, message)


def broken_glass(story: Story) -> Message:
    """Draw the alarm. It mentions the owners, so that their phones ring."""
    run, glass = story.run, story.glass
    if glass is None or glass.until is None:
        raise ValueError(f"no glass was broken for run {run.id}")
    who = story.name(glass.person)
    text = f"{who} broke the glass: {run.title} ({story.area})"
    owners = [owner for owner in story.owners if owner.user]
    mentioned = [part for owner in owners for part in (person(owner.user), words(" "))]
    page = [words(" "), link(story.page, "Look at it")] if story.page else []
    parts = [
        line(emoji("rotating_light"), words(" "), bold(text)),
        quote(glass.reason),
        line(
            words("It goes through freezes and without approvals. "),
            *mentioned,
            words("one of you reviews it within a day: "),
            code(f"{COMMAND} review {run.id} what you found"),
            *page,
        ),
    ]
    told = f"run {run.id} · open until {when(glass.until)} at the latest"
    return Message(notification(text), [rich(*parts), context(told)])
