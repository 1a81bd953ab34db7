"""The messages of one run in Slack, each of which is sent once."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slack_sdk.errors import SlackApiError

from bot.db import outbox, storms
from bot.db.database import Database, Transaction
from bot.db.outbox import PostedMessage
from bot.slack.blocks import Message
from bot.slack.client import (
    CLOSED_CHANNEL_ERRORS,
    GONE_MESSAGE_ERRORS,
    UNREACHABLE_USER_ERRORS,
    MessageLocation,
    MessageSender,
    get_error_cause,
    with_message_name,
)
from bot.slack.run_facts import SlackRunView
from bot.slack.threads import write_or_log

_log = logging.getLogger(__name__)

# The slot of the card; and the starts of those of its copies, and of questions and answers.
CARD, COPY, REMARK = "card", "copy ", "remark "
# The start of the slots of the users who asked for a copy.
ASKED = "asked "


@dataclass(frozen=True)
class Storm:
    """A card that several runs share."""

    leader: int
    """The run whose delivery posts and updates it."""
    location: MessageLocation | None
    """None until it is posted."""
    has_own_card: bool
    """Whether the run has overtaken the others, with a card of its own."""


class RunPosts:
    """The messages of one run. A slot names each of them, such as `card` or `alarm U1`.

    Attributes:
        run_view: the run as it is now.
        posted: what was sent, by slot.
        watchers: the users who watched it, and have no message about its end yet.
        storm: the card that the run shares with others; None if there is none.
    """

    def __init__(
        self,
        database: Database,
        sender: MessageSender,
        run_view: SlackRunView,
        posted: Mapping[str, PostedMessage],
    ) -> None:
        self.watchers: Sequence[str] = ()
        self.storm: Storm | None = None
        self._database, self._sender = database, sender
        self.run_view, self.posted = run_view, posted

    def get_location(self, slot: str) -> MessageLocation:
        """Return where a message is that was sent."""
        posted = self.posted[slot]
        return MessageLocation(posted.channel, posted.ts)

    async def post_once(
        self, slot: str, message: Message, location: MessageLocation | None
    ) -> bool:
        """Post a message in the thread of the one at *location*; return whether it is new.

        location: with ts "", the message begins a thread; None: there is no place for it.
        """
        if location is None or slot in self.posted:
            return False
        named_message = with_message_name(message, self.run_view, slot)
        posted = await self._sender.post_message(
            location.channel, named_message, thread=location.ts
        )
        await self.store(slot, posted, message)
        return True

    async def try_post_once(self, slot: str, message: Message, channel: str) -> None:
        """Post a message in a channel; log an error if that is closed."""
        try:
            await self.post_once(slot, message, MessageLocation(channel, ""))
        except SlackApiError as error:
            if get_error_cause(error) not in CLOSED_CHANNEL_ERRORS:
                raise
            _log.error("cannot post the %s in %s: %s", slot, channel, get_error_cause(error))

    async def send_once(self, slot: str, message: Message, user: str) -> None:
        """Send a direct message."""
        if slot not in self.posted:
            named_message = with_message_name(message, self.run_view, slot)
            sent = await self._sender.send_direct_message(user, named_message)
            await self.store(slot, sent, message)

    async def try_send_once(self, slot: str, message: Message, user: str) -> None:
        """Send a direct message, unless the person cannot receive any."""
        try:
            await self.send_once(slot, message, user)
        except SlackApiError as error:
            if get_error_cause(error) not in UNREACHABLE_USER_ERRORS:
                raise
            _log.warning("cannot send a direct message to %s: %s", user, get_error_cause(error))
            await self.store(slot, MessageLocation("", ""), message)

    async def update_or_forget(self, slot: str, message: Message) -> None:
        """Update a message if it is out of date and still there."""
        location = self.get_location(slot)
        if location.ts and not await self.update(slot, message):
            await self.store(slot, replace(location, ts=""), message)

    async def update(self, slot: str, message: Message) -> bool:
        """Update a message if it is out of date; return False if it is gone or out of reach."""
        location = self.get_location(slot)
        if self.posted[slot].digest == message.digest:
            return True
        try:
            await self._sender.update_message(location, message)
        except SlackApiError as error:
            if get_error_cause(error) not in GONE_MESSAGE_ERRORS | UNREACHABLE_USER_ERRORS:
                raise
            return False
        await self.store(slot, location, message)
        return True

    @property
    def shares_card(self) -> bool:
        """Whether the run has no card of its own."""
        return self.storm is not None and not self.storm.has_own_card

    async def store(
        self,
        slot: str,
        location: MessageLocation,
        message: Message,
        *,
        is_new_thread: bool = False,
    ) -> None:
        """Record a message that was sent.

        is_new_thread: whether the runs that share it as their card were without a place for what
        follows in its thread: they are announced.
        """
        posted = PostedMessage(
            self.run_view.run.id, slot, location.channel, location.ts, message.digest
        )

        def write(tx: Transaction) -> None:
            outbox.store_message(tx, posted)
            for number in storms.list_members(tx, posted.run) if is_new_thread else ():
                outbox.announce_run(tx, number)

        await write_or_log(self._database, write)
