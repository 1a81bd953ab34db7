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
    format_date,
    format_notification,
    rich_text,
    rich_text_section,
    text_element,
)
from bot.slack.client import (
    GONE_MESSAGE_ERRORS,
    UNREACHABLE_USER_ERRORS,
    MessageLocation,
    MessageSender,
    get_error_code,
    with_message_name,
)
from bot.slack.run_facts import Approver, SlackRunView
from bot.slack.run_message import render_card, render_decided

_log = logging.getLogger(__name__)

_MAX_COPIES = 10

StoreMessage = Callable[[SlackRunView, str, MessageLocation, Message], Awaitable[None]]


class ApproverCards:
    def __init__(self, voice: MessageSender, store_message: StoreMessage) -> None:
        self._sender, self._store_message = voice, store_message

    async def update_copies(
        self,
        story: SlackRunView,
        place: MessageLocation | None,
        notices: Mapping[str, PostedMessage],
    ) -> None:
        """Send the copies that are due, and let none stand that says what is no longer so."""
        message = render_card(story) if story.run.state is State.PENDING else render_decided(story)
        sent = {slot: notice for slot, notice in notices.items() if slot.startswith(COPY)}
        for slot, notice in sent.items():
            if notice.ts and notice.digest != message.digest:
                await self._update_copy(
                    story, slot, MessageLocation(notice.channel, notice.ts), message
                )
        for user in list_users_due_copy(story, place):
            if f"{COPY}{user}" not in sent:
                await self._send_copy(story, user, message)

    async def _send_copy(self, story: SlackRunView, user: str, message: Message) -> None:
        slot = f"{COPY}{user}"
        try:
            place = await self._sender.send_direct_message(
                user, with_message_name(message, story, slot)
            )
        except SlackApiError as refused:
            if get_error_code(refused) not in UNREACHABLE_USER_ERRORS:
                raise
            _log.warning("%s cannot be written to: %s", user, get_error_code(refused))
            place = MessageLocation("", "")
        await self._store_message(story, slot, place, message)

    async def _update_copy(
        self, story: SlackRunView, slot: str, place: MessageLocation, message: Message
    ) -> None:
        try:
            await self._sender.update_message(place, message)
        except SlackApiError as refused:
            if get_error_code(refused) not in GONE_MESSAGE_ERRORS | UNREACHABLE_USER_ERRORS:
                raise
            place = MessageLocation(place.channel, "")
        await self._store_message(story, slot, place, message)


def list_users_due_copy(story: SlackRunView, place: MessageLocation | None) -> list[str]:
    """Return the users who are to have a copy of the card by now. place: where the card stands."""
    if story.run.state is not State.PENDING:
        return []
    unseen = place is None or place.channel.startswith("D")
    if story.run.reminded_at is None and not unseen:
        return []
    there = {story.requester if unseen else ""}
    users = [
        one.slack_user
        for one in list_missing_approvers(story)
        if one.slack_user and one.slack_user not in there
    ]
    return users[:_MAX_COPIES]


_MAX_NAMES = 10


def build_reminders(story: SlackRunView) -> dict[str, Message]:
    """Return what is due to be said, by a name under which it is said once."""
    run = story.run
    if run.state is not State.PENDING:
        return {}
    said: dict[str, Message] = {}
    if run.escalated_at is not None:
        said["escalation"] = _build_reminder(
            story, f"Nobody has decided, so by now {story.approvals_from} may"
        )
    elif run.reminded_at is not None:
        said[f"reminder {run.reminded_at}"] = _build_reminder(
            story, "This still waits for your approval"
        )
    return said


def _build_reminder(story: SlackRunView, text: str) -> Message:
    run = story.run
    parts: list[Element] = [emoji("bell"), text_element(" ")]
    # Their telephones ring for the copy of the card that they get, and once is enough.
    names = [approver.name for approver in list_missing_approvers(story)[:_MAX_NAMES]]
    parts.append(bold(f"{', '.join(names)} "))
    parts.append(text_element(f"{text}: {run.title}"))
    since = f"waits since {format_date(run.pending_since or run.requested_at)}"
    until = f" · until {format_date(run.expires_at)}" if run.expires_at else ""
    return Message(
        format_notification(f"{text}: {run.title}"),
        [rich_text(rich_text_section(*parts)), context(since + until)],
    )


def list_missing_approvers(story: SlackRunView) -> list[Approver]:
    """Return those who have not voted yet, and could."""
    voted = {story.get_person_name(vote.person) for vote in story.approvals}
    return [approver for approver in story.approvers if approver.name not in voted]
