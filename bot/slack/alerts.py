"""Notify channels and owners of break-glass, and of runs that another person has to review."""

from collections.abc import Mapping

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
from bot.slack.client import MessageSender, StoreMessage, with_message_name
from bot.slack.run_facts import SlackRunView


class BreakGlassAlerts:
    """Sends the alerts. channel: C…, where those of every area go; "" if there is none."""

    def __init__(
        self, sender: MessageSender, store_message: StoreMessage, *, channel: str
    ) -> None:
        self._sender, self._store_message, self._channel = sender, store_message, channel

    async def send_alerts(
        self, run_view: SlackRunView, posted_messages: Mapping[str, PostedMessage]
    ) -> None:
        """Notify the area's channel, the alert channel and each owner, once."""
        if run_view.break_glass is None or run_view.break_glass.activated_at is None:
            return
        message = render_break_glass_alert(run_view)
        for channel in dict.fromkeys(filter(None, (run_view.channel, self._channel))):
            await self._alert_channel(run_view, channel, message, posted_messages)
        for owner in run_view.owners:
            if owner.slack_user and owner.slack_user != run_view.requester:
                await self._alert_owner(run_view, owner.slack_user, message, posted_messages)

    async def _alert_owner(
        self,
        run_view: SlackRunView,
        user: str,
        message: Message,
        posted_messages: Mapping[str, PostedMessage],
    ) -> None:
        slot = f"alarm {user}"
        if slot in posted_messages:
            return
        named_message = with_message_name(message, run_view, slot)
        location = await self._sender.try_direct_message(user, named_message)
        await self._store_message(run_view, slot, location, message)

    async def _alert_channel(
        self,
        run_view: SlackRunView,
        channel: str,
        message: Message,
        posted_messages: Mapping[str, PostedMessage],
    ) -> None:
        slot = f"alarm {channel}"
        if slot in posted_messages:
            return
        location = await self._sender.try_post_message(
            channel, with_message_name(message, run_view, slot), what="the break-glass alert"
        )
        # If this channel is closed, the others are still notified.
        if location is not None:
            await self._store_message(run_view, slot, location, message)


def render_break_glass_alert(run_view: SlackRunView) -> Message:
    """Render the alert. It mentions the owners, so that Slack notifies them."""
    run, break_glass = run_view.run, run_view.break_glass
    if break_glass is None or break_glass.activated_at is None:
        raise ValueError(f"run {run.id} needs no review")
    who = run_view.get_person_name(break_glass.person)
    text = f"{who} {break_glass.deed}: {run.title} ({run_view.area_title})"
    owners = [owner for owner in run_view.owners if owner.slack_user]
    mentioned = [
        part for owner in owners for part in (user_mention(owner.slack_user), text_element(" "))
    ]
    page = [text_element(" "), link(run_view.page_url, "Open")] if run_view.page_url else []
    parts = [
        rich_text_section(emoji("rotating_light"), text_element(" "), bold(text)),
        *([quote(break_glass.reason)] if break_glass.reason else []),
        rich_text_section(
            text_element(
                "A rule of the policy permits it. "
                if break_glass.is_by_rule
                else "It bypasses freezes and approvals. "
            ),
            *mentioned,
            text_element("one of you must review it within a day: "),
            code(f"{COMMAND} review {run.id} FINDINGS"),
            *page,
        ),
    ]
    facts = f"run {run.id}"
    if break_glass.active_until is not None:
        facts += f" · active until {format_date(break_glass.active_until)} at the latest"
    return Message(format_notification(text), [rich_text(*parts), context(facts)])
