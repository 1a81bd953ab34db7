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
    format_date,
    format_notification,
    link,
    quote,
    rich_text,
    rich_text_section,
    text_element,
    user_mention,
)
from bot.slack.client import (
    CLOSED_CHANNEL_ERRORS,
    UNREACHABLE_USER_ERRORS,
    MessageLocation,
    MessageSender,
    get_error_code,
    with_message_name,
)
from bot.slack.run_facts import SlackRunView

_log = logging.getLogger(__name__)

StoreMessage = Callable[[SlackRunView, str, MessageLocation, Message], Awaitable[None]]


class BreakGlassAlerts:
    """channel: C…, where alarms of every area go; "" if there is none."""

    def __init__(self, voice: MessageSender, store_message: StoreMessage, *, channel: str) -> None:
        self._sender, self._store_message, self._channel = voice, store_message, channel

    async def send_alerts(self, story: SlackRunView, notices: Mapping[str, PostedMessage]) -> None:
        """Tell of broken glass: the area's channel, the one for alarms, and each owner, once."""
        if story.break_glass is None or story.break_glass.activated_at is None:
            return
        message = render_break_glass_alert(story)
        for channel in dict.fromkeys(filter(None, (story.channel, self._channel))):
            await self._alert_channel(story, channel, message, notices)
        for owner in story.owners:
            if owner.slack_user and owner.slack_user != story.requester:
                await self._alert_owner(story, owner.slack_user, message, notices)

    async def _alert_owner(
        self,
        story: SlackRunView,
        user: str,
        message: Message,
        notices: Mapping[str, PostedMessage],
    ) -> None:
        slot = f"alarm {user}"
        if slot in notices:
            return
        try:
            place = await self._sender.send_direct_message(
                user, with_message_name(message, story, slot)
            )
        except SlackApiError as refused:
            if get_error_code(refused) not in UNREACHABLE_USER_ERRORS:
                raise
            # The others hear of it all the same.
            _log.error("%s hears no alarm: %s", user, get_error_code(refused))
            place = MessageLocation("", "")
        await self._store_message(story, slot, place, message)

    async def _alert_channel(
        self,
        story: SlackRunView,
        channel: str,
        message: Message,
        notices: Mapping[str, PostedMessage],
    ) -> None:
        slot = f"alarm {channel}"
        if slot in notices:
            return
        try:
            place = await self._sender.post_message(
                channel, with_message_name(message, story, slot)
            )
        except SlackApiError as refused:
            if get_error_code(refused) not in CLOSED_CHANNEL_ERRORS:
                raise
            # The others hear of it all the same.
            _log.error("no alarm in %s: %s", channel, get_error_code(refused))
            return
        await self._store_message(story, slot, place, message)


def render_break_glass_alert(story: SlackRunView) -> Message:
    """Draw the alarm. It mentions the owners, so that their phones ring."""
    run, glass = story.run, story.break_glass
    if glass is None or glass.active_until is None:
        raise ValueError(f"no glass was broken for run {run.id}")
    who = story.get_person_name(glass.person)
    text = f"{who} broke the glass: {run.title} ({story.area_title})"
    owners = [owner for owner in story.owners if owner.slack_user]
    mentioned = [
        part for owner in owners for part in (user_mention(owner.slack_user), text_element(" "))
    ]
    page = [text_element(" "), link(story.page_url, "Look at it")] if story.page_url else []
    parts = [
        rich_text_section(emoji("rotating_light"), text_element(" "), bold(text)),
        quote(glass.reason),
        rich_text_section(
            text_element("It goes through freezes and without approvals. "),
            *mentioned,
            text_element("one of you reviews it within a day: "),
            code(f"{COMMAND} review {run.id} what you found"),
            *page,
        ),
    ]
    told = f"run {run.id} · open until {format_date(glass.active_until)} at the latest"
    return Message(format_notification(text), [rich_text(*parts), context(told)])
