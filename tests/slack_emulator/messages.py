"""Messages of the emulator's workspace, and how Slack writes them down."""

from dataclasses import dataclass, replace

from tests.slack_emulator.directory import Installation
from tests.slack_emulator.wire import Json


@dataclass(frozen=True)
class SharedFile:
    """A file that was uploaded; shown under the message that shared it."""

    file_id: str
    name: str
    title: str
    content: bytes


@dataclass(frozen=True)
class Message:
    """One message. `only_for` is the one person who sees it, if it is ephemeral.

    command: the slash command that it answers for everyone to see, as it was typed.
    """

    channel: str
    ts: str
    user: str
    text: str = ""
    blocks: tuple[Json, ...] = ()
    thread_ts: str = ""
    only_for: str = ""
    edited: str = ""
    command: str = ""
    files: tuple[SharedFile, ...] = ()
    reactions: tuple[tuple[str, str], ...] = ()
    metadata: Json | None = None
    unfurls: tuple[tuple[str, tuple[Json, ...]], ...] = ()

    @property
    def in_thread(self) -> bool:
        return bool(self.thread_ts) and self.thread_ts != self.ts

    def seen_by(self, user: str) -> bool:
        return self.only_for in ("", user)

    def with_unfurl(self, url: str, blocks: tuple[Json, ...]) -> "Message":
        others = tuple(one for one in self.unfurls if one[0] != url)
        return replace(self, unfurls=(*others, (url, blocks)))

    def with_reaction(self, name: str, user: str) -> "Message":
        return replace(self, reactions=(*self.reactions, (name, user)))


def message_json(message: Message, app: Installation) -> Json:
    """Return the message as Slack's answers and payloads show it."""
    shown: Json = {
        "type": "message",
        "user": message.user,
        "ts": message.ts,
        "text": message.text,
        "team": app.team_id,
    }
    if message.user == app.bot_user_id:
        shown |= {"bot_id": app.bot_id, "app_id": app.app_id, "bot_profile": _profile(app)}
    if message.blocks:
        shown["blocks"] = list(message.blocks)
    if message.thread_ts:
        shown["thread_ts"] = message.thread_ts
    if message.edited:
        shown["edited"] = {"user": message.user, "ts": message.edited}
    if message.files:
        shown["files"] = [file_json(file) for file in message.files]
    if message.metadata is not None:
        shown["metadata"] = message.metadata
    if message.unfurls:
        shown["attachments"] = [
            {"from_url": url, "blocks": list(blocks)} for url, blocks in message.unfurls
        ]
    return shown


def file_json(file: SharedFile) -> Json:
    return {
        "id": file.file_id,
        "name": file.name,
        "title": file.title,
        "size": len(file.content),
        "mimetype": "text/plain",
    }


def _profile(app: Installation) -> Json:
    return {
        "id": app.bot_id,
        "app_id": app.app_id,
        "name": app.bot_display,
        "deleted": False,
        "team_id": app.team_id,
    }
