"""Declines: who asked to erase what a host answered is told that an owner has said no, and why."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from slack_sdk.errors import SlackApiError

from bot.db.outbox import PostedMessage
from bot.slack.blocks import (
    Message,
    bold,
    format_notification,
    link,
    quote,
    rich_text,
    rich_text_section,
    text_element,
)
from bot.slack.client import (
    UNREACHABLE_USER_ERRORS,
    MessageLocation,
    MessageSender,
    get_error_code,
    with_message_name,
)
from bot.slack.run_facts import SlackRunView

_log = logging.getLogger(__name__)

StoreMessage = Callable[[SlackRunView, str, MessageLocation, Message], Awaitable[None]]


class DeclinedErasureMessages:
    def __init__(self, voice: MessageSender, store_message: StoreMessage) -> None:
        self._sender, self._store_message = voice, store_message

    async def send_declined_erasure(
        self, story: SlackRunView, notices: Mapping[str, PostedMessage]
    ) -> None:
        """Tell it once, in the conversation with who asked."""
        if story.declined_erasure is None or not story.declined_erasure.slack_user:
            return
        slot = f"declined {story.declined_erasure.entry_number}"
        if slot not in notices:
            message = render_declined_erasure(story)
            named_so = with_message_name(message, story, slot)
            try:
                place = await self._sender.send_direct_message(
                    story.declined_erasure.slack_user, named_so
                )
            except SlackApiError as refused:
                if get_error_code(refused) not in UNREACHABLE_USER_ERRORS:
                    raise
                _log.warning(
                    "%s cannot be written to: %s",
                    story.declined_erasure.slack_user,
                    get_error_code(refused),
                )
                place = MessageLocation("", "")
            await self._store_message(story, slot, place, message)


def render_declined_erasure(story: SlackRunView) -> Message:
    """Draw what they are told. Raises ValueError if nothing was declined."""
    no = story.declined_erasure
    if no is None:
        raise ValueError(f"nobody declined to erase anything of run {story.run.id}")
    text = f"{no.declined_by} declined to erase what was answered in run {story.run.id}"
    page = (
        [text_element(" "), link(f"{story.page_url}/erase", "Look at it")]
        if story.page_url
        else []
    )
    parts = [rich_text_section(bold(text), *page), quote(no.reason)]
    return Message(format_notification(text), [rich_text(*parts)])
