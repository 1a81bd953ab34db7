"""Copies of a card, in the conversations of those whose approval it waits for.

Everybody who may approve is named on the card in the channel, and that is enough at first: who is
written to directly for each request soon reads none. So a copy goes out when nobody has decided
for as long as the rule has patience, or where there is no channel in which they could see it.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

from slack_sdk.errors import SlackApiError

from bot.run import State
from bot.slack.blocks import Message
from bot.slack.card import card, settled
from bot.slack.decisions import COPY
from bot.slack.echo import named
from bot.slack.nudge import waited_for
from bot.slack.story import Story
from bot.slack.voice import GONE_MESSAGES, UNREACHABLE, Place, Voice, error_of
from bot.store.news import Notice

log = logging.getLogger(__name__)

_MOST = 10

Remember = Callable[[Story, str, Place, Message], Awaitable[None]]


class Copies:
    def __init__(self, voice: Voice, remember: Remember) -> None:
        self._voice, self._remember = voice, remember

    async def bring_up_to_date(
        self, story: Story, place: Place | None, notices: Mapping[str, Notice]
    ) -> None:
        """Send the copies that are due, and let none stand that says what is no longer so."""
        message = card(story) if story.run.state is State.WAITING else settled(story)
        sent = {slot: notice for slot, notice in notices.items() if slot.startswith(COPY)}
        for slot, notice in sent.items():
            if notice.ts and notice.digest != message.digest:
                await self._update(story, slot, Place(notice.channel, notice.ts), message)
        for user in due(story, place):
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


def due(story: Story, place: Place | None) -> list[str]:
    """Return the users who are to have a copy of the card by now. place: where the card stands."""
    if story.run.state is not State.WAITING:
        return []
    unseen = place is None or place.channel.startswith("D")
    if story.run.reminded is None and not unseen:
        return []
    there = {story.asker if unseen else ""}
    users = [one.user for one in waited_for(story) if one.user and one.user not in there]
    return users[:_MOST]
