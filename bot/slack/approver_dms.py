"""Notify approvers: copies of the card as direct messages, and reminders in its thread."""

import logging
from collections.abc import Mapping

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
    StoreMessage,
    get_error_code,
    with_message_name,
)
from bot.slack.run_facts import Approver, SlackRunView
from bot.slack.run_message import render_card, render_decided

_log = logging.getLogger(__name__)

_MAX_COPIES = 10


class ApproverCards:
    """Sends and updates copies of the card. store_message: records what was sent."""

    def __init__(self, sender: MessageSender, store_message: StoreMessage) -> None:
        self._sender, self._store_message = sender, store_message

    async def update_copies(
        self,
        run_view: SlackRunView,
        location: MessageLocation | None,
        posted_messages: Mapping[str, PostedMessage],
    ) -> None:
        """Send the copies that are due, and update those that are out of date."""
        message = (
            render_card(run_view)
            if run_view.run.state is State.PENDING
            else render_decided(run_view)
        )
        sent = {slot: notice for slot, notice in posted_messages.items() if slot.startswith(COPY)}
        for slot, notice in sent.items():
            if notice.ts and notice.digest != message.digest:
                await self._update_copy(
                    run_view, slot, MessageLocation(notice.channel, notice.ts), message
                )
        for user in list_users_due_copy(run_view, location):
            slot = _build_copy_slot(run_view, user)
            if slot not in sent:
                await self._send_copy(run_view, user, slot, message)

    async def _send_copy(
        self, run_view: SlackRunView, user: str, slot: str, message: Message
    ) -> None:
        named_message = with_message_name(message, run_view, slot)
        location = await self._sender.try_direct_message(user, named_message)
        await self._store_message(run_view, slot, location, message)

    async def _update_copy(
        self, run_view: SlackRunView, slot: str, location: MessageLocation, message: Message
    ) -> None:
        try:
            await self._sender.update_message(location, message)
        except SlackApiError as error:
            if get_error_code(error) not in GONE_MESSAGE_ERRORS | UNREACHABLE_USER_ERRORS:
                raise
            location = MessageLocation(location.channel, "")
        await self._store_message(run_view, slot, location, message)


def _build_copy_slot(run_view: SlackRunView, user: str) -> str:
    """Return the slot of a person's copy: the assignee gets a new one, which notifies them."""
    assignment = run_view.discussion.assignment
    is_assigned = any(one.is_assigned and one.slack_user == user for one in run_view.approvers)
    return f"{COPY}{user} {assignment.at}" if assignment and is_assigned else f"{COPY}{user}"


def list_users_due_copy(run_view: SlackRunView, location: MessageLocation | None) -> list[str]:
    """Return the users who need a copy of the card. location: of the card itself."""
    if run_view.run.state is not State.PENDING:
        return []
    is_hidden = location is None or location.channel.startswith("D")
    missing = list_missing_approvers(run_view)
    is_called = any(one.is_assigned or one.is_on_duty for one in missing)
    if run_view.run.reminded_at is None and not is_hidden and not is_called:
        return []
    informed = {run_view.requester if is_hidden else ""}
    users = [
        one.slack_user for one in missing if one.slack_user and one.slack_user not in informed
    ]
    return users[:_MAX_COPIES]


_MAX_NAMES = 10


def build_reminders(run_view: SlackRunView) -> dict[str, Message]:
    """Return the reminders that are due, by slot: each slot is sent once."""
    run = run_view.run
    if run.state is not State.PENDING:
        return {}
    reminders: dict[str, Message] = {}
    if run.escalated_at is not None:
        reminders["escalation"] = _build_reminder(
            run_view, f"Escalated: {run_view.approvals_from} can now approve"
        )
    elif run.reminded_at is not None:
        reminders[f"reminder {run.reminded_at}"] = _build_reminder(
            run_view, "Your approval is still needed"
        )
    return reminders


def _build_reminder(run_view: SlackRunView, text: str) -> Message:
    run = run_view.run
    parts: list[Element] = [emoji("bell"), text_element(" ")]
    # Names without mentions: Slack notifies approvers of their copy of the card already.
    names = [approver.name for approver in list_missing_approvers(run_view)[:_MAX_NAMES]]
    if names:
        parts.append(bold(f"{', '.join(names)}: "))
    parts.append(text_element(f"{text}: {run.title}"))
    since = f"waiting since {format_date(run.pending_since or run.requested_at)}"
    until = f" · expires {format_date(run.expires_at)}" if run.expires_at else ""
    return Message(
        format_notification(f"{text}: {run.title}"),
        [rich_text(rich_text_section(*parts)), context(since + until)],
    )


def list_missing_approvers(run_view: SlackRunView) -> list[Approver]:
    """Return the approvers who have not decided yet: of those, who is called first.

    That is who is assigned; or, until approvers are reminded, who is on duty.
    """
    decided = {run_view.get_person_name(decision.person) for decision in run_view.approvals}
    missing = [approver for approver in run_view.approvers if approver.name not in decided]
    on_duty = [one for one in missing if one.is_on_duty and run_view.run.reminded_at is None]
    return [one for one in missing if one.is_assigned] or on_duty or missing
