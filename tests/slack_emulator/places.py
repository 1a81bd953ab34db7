"""Where a person acts: a message, a modal or a Home tab; and how payloads name the place."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from tests.slack_emulator.blockkit import with_ids
from tests.slack_emulator.form_values import find, has_value
from tests.slack_emulator.messages import Message, message_json
from tests.slack_emulator.payloads import channel_ref
from tests.slack_emulator.views import View, view_json
from tests.slack_emulator.wire import Json, SlackError, record, records, text
from tests.slack_emulator.workspace import Workspace


@dataclass(frozen=True)
class MessagePlace:
    message: Message

    @property
    def key(self) -> str:
        return f"{self.message.channel}/{self.message.ts}"

    @property
    def blocks(self) -> Sequence[Json]:
        return self.message.blocks

    def json(self, workspace: Workspace, state: Json, response_url: str) -> Json:
        message = self.message
        container: Json = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": message.channel,
            "is_ephemeral": bool(message.only_for),
        }
        if message.in_thread:
            container["thread_ts"] = message.thread_ts
        place: Json = {
            "container": container,
            "channel": channel_ref(workspace.channel(message.channel)),
            "state": {"values": state},
            "response_url": response_url,
        }
        # Slack does not hand back what an ephemeral message holds.
        if not message.only_for:
            place["message"] = message_json(message, workspace.app)
        return place


@dataclass(frozen=True)
class ViewPlace:
    view: View

    @property
    def key(self) -> str:
        return self.view.id

    @property
    def blocks(self) -> Sequence[Json]:
        return records(self.view.payload.get("blocks"))

    def json(self, workspace: Workspace, state: Json, response_url: str) -> Json:
        del response_url  # there is none in views
        return {
            "container": {"type": "view", "view_id": self.view.id},
            "view": view_json(self.view, workspace.app, state),
        }


Place = MessagePlace | ViewPlace


def action_json(blocks: Sequence[Json], pressed: str, state: Json, *, action_ts: str) -> Json:
    """Return the one entry of `actions`. pressed: an address, and an option's value after it."""
    block_id, action_id, *rest = pressed.split("/")
    block, element = find(blocks, f"{block_id}/{action_id}")
    named: Json = {
        "type": element.get("type"),
        "block_id": block["block_id"],
        "action_id": element["action_id"],
        "action_ts": action_ts,
    }
    if has_value(element):
        values = record(state.get(text(block["block_id"])))
        return named | record(values.get(text(element["action_id"])))
    if rest:
        return named | _with_option(element, unquote(rest[0]))
    for name in ("text", "value", "style", "url"):
        if element.get(name) is not None:
            named[name] = element[name]
    return named


def _with_option(element: Json, value: str) -> Json:
    for side in ("positive_button", "negative_button"):
        button = record(element.get(side))
        if button.get("value") == value:
            return {"text": button.get("text"), "value": value}
    for option in records(element.get("options")):
        if option.get("value") == value:
            return {"selected_option": option}
    raise SlackError("action_not_found")


def payload_with_ids(view: Json) -> Json:
    """Return a view with the ids that Slack makes up for its blocks."""
    return {**view, "blocks": list(with_ids(view.get("blocks")))}
