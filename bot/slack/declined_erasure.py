"""Notify the requester when an owner declines to erase the output of a run."""

from collections.abc import Mapping

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
    MessageSender,
    StoreMessage,
    with_message_name,
)
from bot.slack.run_facts import SlackRunView


class DeclinedErasureMessages:
    """Sends the notices. store_message: records what was sent."""

    def __init__(self, sender: MessageSender, store_message: StoreMessage) -> None:
        self._sender, self._store_message = sender, store_message

    async def send_declined_erasure(
        self, run_view: SlackRunView, posted_messages: Mapping[str, PostedMessage]
    ) -> None:
        """Send the notice once, as a direct message to the requester."""
        if run_view.declined_erasure is None or not run_view.declined_erasure.slack_user:
            return
        slot = f"declined {run_view.declined_erasure.entry_number}"
        if slot not in posted_messages:
            message = render_declined_erasure(run_view)
            named_message = with_message_name(message, run_view, slot)
            user = run_view.declined_erasure.slack_user
            location = await self._sender.try_direct_message(user, named_message)
            await self._store_message(run_view, slot, location, message)


def render_declined_erasure(run_view: SlackRunView) -> Message:
    """Render the notice. Raises ValueError if no erasure was declined."""
    declined = run_view.declined_erasure
    if declined is None:
        raise ValueError(f"run {run_view.run.id} has no declined erasure")
    text = f"{declined.declined_by} declined to erase the output of run {run_view.run.id}"
    page = (
        [text_element(" "), link(f"{run_view.page_url}/erase", "Open")]
        if run_view.page_url
        else []
    )
    parts = [rich_text_section(bold(text), *page), quote(declined.reason)]
    return Message(format_notification(text), [rich_text(*parts)])
