"""Notify the requester when an owner declines to erase the output of a run."""

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
            try:
                location = await self._sender.send_direct_message(
                    run_view.declined_erasure.slack_user, named_message
                )
            except SlackApiError as error:
                if get_error_code(error) not in UNREACHABLE_USER_ERRORS:
                    raise
                _log.warning(
                    "cannot send a direct message to %s: %s",
                    run_view.declined_erasure.slack_user,
                    get_error_code(error),
                )
                location = MessageLocation("", "")
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
