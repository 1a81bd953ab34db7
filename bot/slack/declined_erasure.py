"""Declines: who asked to erase what a host answered is told that an owner has said no, and why."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from slack_sdk.errors import SlackApiError

from bot.db.outbox import PostedMessage
from bot.slack.blocks import Message, bold, line, link, notification, quote, rich, words
from bot.slack.client import UNREACHABLE, Place, Voice, error_of, named
from bot.slack.run_facts import Story

log = logging.getLogger(__name__)

Remember = Callable[[Story, str, Place, Message], Awaitable[None]]


class Declines:
    def __init__(self, voice: Voice, remember: Remember) -> None:
        self._voice, self._remember = voice, remember

    async def tell(self, story: Story, notices: Mapping[str, PostedMessage]) -> None:
        """Tell it once, in the conversation with who asked."""
        if story.declined is None or not story.declined.user:
            return
        slot = f"declined {story.declined.seq}"
        if slot not in notices:
            message = render_declined_erasure(story)
            named_so = named(message, story, slot)
            try:
                place = await self._voice.tell(story.declined.user, named_so)
            except SlackApiError as refused:
                if error_of(refused) not in UNREACHABLE:
                    raise
                log.warning("%s cannot be written to: %s", story.declined.user, error_of(refused))
                place = Place("", "")
            await self._remember(story, slot, place, message)


def render_declined_erasure(story: Story) -> Message:
    """Draw what they are told. Raises ValueError if nothing was declined."""
    no = story.declined
    if no is None:
        raise ValueError(f"nobody declined to erase anything of run {story.run.id}")
    text = f"{no.by} declined to erase what was answered in run {story.run.id}"
    page = [words(" "), link(f"{story.page}/erase", "Look at it")] if story.page else []
    parts = [line(bold(text), *page), quote(no.why)]
    return Message(notification(text), [rich(*parts)])
