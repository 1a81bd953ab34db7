"""The workspace that the emulator plays: its people, channels and messages, in memory only."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.slack_emulator.change_sequence import ChangeSequence
from tests.slack_emulator.directory import (
    SYSTEM_USER,
    EmulatedChannel,
    EmulatedPerson,
    Installation,
)
from tests.slack_emulator.expiring_ids import Clock
from tests.slack_emulator.faults import Faults
from tests.slack_emulator.messages import Message
from tests.slack_emulator.wire import SlackError


@dataclass
class Channel:
    """A conversation. kind: `channel`, `group` (private), `im` or `mpim`."""

    id: str
    name: str
    kind: str
    topic: str = ""
    members: set[str] = field(default_factory=set[str])
    archived: bool = False
    # With another organisation.
    shared: bool = False

    @property
    def direct(self) -> bool:
        return self.kind in ("im", "mpim")


class Workspace:
    """Everything that Slack would keep, and the sequence of its changes."""

    def __init__(
        self,
        people: Sequence[EmulatedPerson],
        channels: Sequence[EmulatedChannel],
        *,
        app: Installation | None = None,
        now: Clock = time.time,
    ) -> None:
        self.app = app or Installation()
        self.people = {person.user_id: person for person in people}
        self.groups = {group.group_id: group for group in self.app.groups}
        self.deactivated: set[str] = set()
        self.faults = Faults()
        self.changes = ChangeSequence()
        self.now = now
        self._last_ts = 0
        self._messages: dict[str, dict[str, Message]] = {}
        self._read: dict[tuple[str, str], str] = {}
        self.channels: dict[str, Channel] = {}
        for channel in channels:
            self.channels[channel.channel_id] = self._made(channel)
        for person in people:
            self.open_direct([person.user_id])

    def _made(self, given: EmulatedChannel) -> Channel:
        members = set(given.members or self.people)
        if given.bot_inside:
            members.add(self.app.bot_user_id)
        kind = "group" if given.private else "channel"
        return Channel(given.channel_id, given.name, kind, given.topic, members)

    # People

    def person(self, user_id: str) -> EmulatedPerson:
        try:
            return self.people[user_id]
        except KeyError:
            raise SlackError("user_not_found") from None

    def name_of(self, user_id: str) -> str:
        """Return the full name of a person, the bot, or the emulator itself."""
        if user_id == self.app.bot_user_id:
            return self.app.bot_display
        if user_id == SYSTEM_USER:
            return "Emulator"
        person = self.people.get(user_id)
        return person.display if person else user_id

    def set_active(self, user_id: str, *, active: bool) -> None:
        """Deactivate an account, or let it in again."""
        self.person(user_id)
        if active:
            self.deactivated.discard(user_id)
        else:
            self.deactivated.add(user_id)
        self.changes.advance()

    # Channels

    def channel(self, channel_id: str) -> Channel:
        try:
            return self.channels[channel_id]
        except KeyError:
            raise SlackError("channel_not_found") from None

    def open_direct(self, users: Sequence[str]) -> Channel:
        """Return the direct conversation of the bot with these people, opened if need be."""
        for user in users:
            self.person(user)
        members = {*users, self.app.bot_user_id}
        for channel in self.channels.values():
            if channel.direct and channel.members == members:
                return channel
        kind, letter = ("im", "D") if len(users) == 1 else ("mpim", "G")
        name = users[0] if len(users) == 1 else "mpdm-" + "--".join(sorted(users))
        made = Channel(letter + "0" + "".join(u[1:] for u in sorted(users)), name, kind)
        made.members = members
        self.channels[made.id] = made
        return made

    def channels_of(self, user_id: str) -> list[Channel]:
        """Return what a person sees in the rail: public channels, and what they are in."""
        return [
            channel
            for channel in self.channels.values()
            if channel.kind == "channel" or user_id in channel.members
        ]

    def set_bot_inside(self, channel_id: str, *, inside: bool) -> None:
        channel = self.channel(channel_id)
        if inside:
            channel.members.add(self.app.bot_user_id)
        else:
            channel.members.discard(self.app.bot_user_id)
        self.changes.advance()

    def set_archived(self, channel_id: str, *, archived: bool) -> None:
        self.channel(channel_id).archived = archived
        self.changes.advance()

    # Messages

    def next_ts(self) -> str:
        """Return a time stamp as Slack's, later than all before it."""
        self._last_ts = max(int(self.now() * 10_000) * 100, self._last_ts + 100)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def post(self, message: Message) -> Message:
        """Keep a new message; it gets its time stamp here if it has none."""
        kept = replace(message, ts=message.ts or self.next_ts())
        self._messages.setdefault(kept.channel, {})[kept.ts] = kept
        self.changes.advance()
        return kept

    def message(self, channel_id: str, ts: str) -> Message:
        try:
            return self._messages[channel_id][ts]
        except KeyError:
            raise SlackError("message_not_found") from None

    def put(self, message: Message) -> Message:
        """Put a changed message in the place of the one with its time stamp."""
        self.message(message.channel, message.ts)
        return self.post(message)

    def delete(self, channel_id: str, ts: str) -> None:
        self.message(channel_id, ts)
        del self._messages[channel_id][ts]
        self.changes.advance()

    def log(self, channel_id: str, viewer: str) -> list[Message]:
        """Return what a person sees in the channel itself, oldest first."""
        return [
            message
            for message in self._messages.get(channel_id, {}).values()
            if message.seen_by(viewer) and not message.in_thread
        ]

    def thread(self, channel_id: str, ts: str, viewer: str) -> list[Message]:
        """Return a thread's first message and its replies, as a person sees them."""
        return [
            message
            for message in self._messages.get(channel_id, {}).values()
            if message.seen_by(viewer) and ts in (message.ts, message.thread_ts)
        ]

    def everything(self) -> Iterator[Message]:
        for messages in self._messages.values():
            yield from messages.values()

    def notice(self, channel_id: str, user_id: str, text: str, *, thread_ts: str = "") -> Message:
        """Tell one person something in the emulator's own name."""
        return self.post(
            Message(channel_id, "", SYSTEM_USER, text, thread_ts=thread_ts, only_for=user_id)
        )

    # What was read

    def mark_read(self, channel_id: str, user_id: str) -> None:
        seen = self.log(channel_id, user_id)
        if seen:
            self._read[channel_id, user_id] = seen[-1].ts

    def unread(self, channel_id: str, user_id: str) -> int:
        """Return how many messages of others a person has not seen in a channel."""
        last = self._read.get((channel_id, user_id), "")
        return sum(
            message.ts > last and message.user != user_id
            for message in self.log(channel_id, user_id)
        )
