"""One call of the Web API: what it was asked with, and what it may touch."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.slack_emulator.expiring_ids import Triggers
from tests.slack_emulator.sockets import Sockets
from tests.slack_emulator.uploads import Uploads
from tests.slack_emulator.views import Views
from tests.slack_emulator.wire import Json, SlackError, text, whole
from tests.slack_emulator.workspace import Channel, Workspace

# Arguments that hold JSON; in a query or form they are strings of it.
_HOLD_JSON = {
    "blocks": "invalid_blocks_format",
    "view": "invalid_arguments",
    "metadata": "invalid_metadata_format",
    "files": "invalid_arguments",
    "attachments": "invalid_attachments",
    "unfurls": "invalid_arguments",
}


@dataclass(frozen=True)
class CallContext:
    """Everything that methods work on. `url` tells where the emulator is mounted."""

    workspace: Workspace
    views: Views
    triggers: Triggers
    uploads: Uploads
    sockets: Sockets
    url: Callable[[], str]


@dataclass(frozen=True)
class Call:
    context: CallContext
    args: Json

    @property
    def workspace(self) -> Workspace:
        return self.context.workspace

    def word(self, name: str) -> str:
        """Return an argument as text; empty where it is not given."""
        return text(self.args.get(name))

    def number(self, name: str, default: int = 0) -> int:
        return whole(self.args.get(name), default)

    def claim(self, name: str) -> bool:
        return self.args.get(name) in (True, "true", "True", "1", 1)

    def needed(self, name: str) -> str:
        value = self.word(name)
        if not value:
            raise SlackError("invalid_arguments", [f"[ERROR] missing required field: {name}"])
        return value

    def conversation(self, name: str = "channel") -> Channel:
        """Return a conversation that the bot may know of: it must be in what is private."""
        channel = self.workspace.channel(self.needed(name))
        inside = self.workspace.app.bot_user_id in channel.members
        if channel.kind != "channel" and not inside:
            raise SlackError("channel_not_found")
        return channel

    def writable(self, name: str = "channel") -> Channel:
        """Return where a message may go; `channel` may be a person's id or a name with #."""
        given = self.needed(name)
        if given in self.workspace.people:
            return self.direct([given])
        channel = self.workspace.channels.get(given) or self._named(given)
        inside = self.workspace.app.bot_user_id in channel.members
        if channel.kind != "channel" and not inside:
            raise SlackError("channel_not_found")
        if channel.archived:
            raise SlackError("is_archived")
        if not inside:
            raise SlackError("not_in_channel")
        return channel

    def direct(self, users: list[str]) -> Channel:
        if any(user in self.workspace.deactivated for user in users):
            raise SlackError("user_disabled")
        return self.workspace.open_direct(users)

    def _named(self, given: str) -> Channel:
        for channel in self.workspace.channels.values():
            if not channel.direct and f"#{channel.name}" == given:
                return channel
        raise SlackError("channel_not_found")


Method = Callable[[Call], Json]
Methods = Mapping[str, Method]


def decoded_args(given: Json) -> Json:
    """Return arguments with those that hold JSON read, however they were sent."""
    args = dict(given)
    for name, error in _HOLD_JSON.items():
        value = args.get(name)
        if not isinstance(value, str):
            continue
        try:
            args[name] = json.loads(value) if value else None
        except ValueError:
            raise SlackError(error) from None
    return args
