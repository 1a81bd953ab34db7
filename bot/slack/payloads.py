"""Parse the requests of Slack, and extract person, place and content. Pure.

Bolt 1.30 takes any form that contains the word "payload" for one of a button or a modal: a slash
command with that word in its text, channel name or user name then ends in a 404. It also answers
invalid UTF-8 and broken JSON with 500.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, cast
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field, ValidationError, model_validator

# As received from outside.
Body = dict[str, Any]

_MAX_FIELDS = 100


class _SlackObject(BaseModel):
    """A person, a team or a channel. Other fields are not checked."""

    id: str | None = None
    team_id: str | None = None
    enterprise_id: str | None = None


class _ActionElement(BaseModel):
    """The element that was clicked."""

    type: str | None = None
    action_id: str
    block_id: str | None = None


class _View(BaseModel):
    type: str | None = None
    callback_id: str | None = None
    team_id: str | None = None
    app_installed_team_id: str | None = None


class _Event(BaseModel):
    type: str | None = None


class _Authorization(BaseModel):
    enterprise_id: str | None = None
    team_id: str | None = None
    is_enterprise_install: bool | None = None


class _PayloadShape(BaseModel):
    """The parts of a payload whose types Bolt 1.30 assumes without a check.

    Source: slack_bolt/request/internals.py and slack_bolt/request/payload_utils.py
    """

    type: str | None = None
    command: str | None = None
    callback_id: str | None = None
    action_id: str | None = None
    block_id: str | None = None
    team_id: str | None = None
    user_id: str | None = None
    channel_id: str | None = None
    enterprise_id: str | None = None
    response_url: str | None = None
    user: _SlackObject | None = None
    team: _SlackObject | None = None
    enterprise: _SlackObject | None = None
    channel: _SlackObject | None = None
    view: _View | None = None
    event: _Event | None = None
    message: dict[str, Any] | None = None
    actions: Annotated[list[_ActionElement], Field(min_length=1)] | None = None
    authorizations: list[_Authorization] | None = None
    response_urls: list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _check_required_part(self) -> "_PayloadShape":
        needed = {
            "block_actions": self.actions,
            "event_callback": self.event,
            "view_submission": self.view,
            "view_closed": self.view,
        }
        if self.type in needed and needed[self.type] is None:
            raise ValueError(f"a {self.type} lacks its required part")
        return self


class MalformedBodyError(ValueError):
    """The body is neither a form nor JSON in Slack's format."""


def parse_body(body: str, content_type: str | None) -> Body:
    """Return the form's fields, the form's `payload`, or the JSON object.

    Raises MalformedBodyError.
    """
    if not body:
        return {}
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind == "application/json" or body.startswith("{"):
        return _parse_json_object(body)
    fields = _parse_form(body)
    return _parse_json_object(fields["payload"]) if "payload" in fields else fields


def check_shape(body: Body) -> Body:
    """Return *body* unchanged. Raises MalformedBodyError if it is not in Slack's format."""
    try:
        _PayloadShape.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the payload"
        raise MalformedBodyError(f"{where}: {first['msg']}") from None
    return body


def _parse_form(body: str) -> Body:
    try:
        pairs = parse_qsl(
            body, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:
        raise MalformedBodyError("the form cannot be read") from error
    return dict(pairs)


def _parse_json_object(text: str) -> Body:
    try:
        found = json.loads(text, parse_constant=_reject_constant)
        # Half a surrogate pair is valid JSON but cannot be encoded as UTF-8.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise MalformedBodyError("the JSON cannot be read") from error
    if not isinstance(found, dict):
        raise MalformedBodyError("the JSON is not an object")
    return found  # pyright: ignore[reportUnknownVariableType] - its keys are strings, as in all JSON


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_MAX_TEXT_LENGTH = 20_000
# Of messages that people write; others are edits, deletions and notes of Slack.
_WRITTEN_SUBTYPES = frozenset({"", "file_share", "me_message", "thread_broadcast"})
# Of messages that programs post; and what channels are called, public and private ones.
_POSTED_SUBTYPES = frozenset({"", "bot_message"})
_CHANNEL_TYPES = frozenset({"channel", "group"})
# The keys under which messages, attachments and blocks hold text for people.
_TEXT_KEYS = frozenset({"text", "fallback", "pretext", "title", "value", "url"})


@dataclass(frozen=True)
class Account:
    """One Slack account by its ids; its owner can change names and addresses."""

    team: str
    """T…, the account's own workspace."""
    user: str
    """U… or W…."""
    enterprise: str = ""
    """E… on Enterprise Grid, else ""."""


@dataclass(frozen=True)
class SlashCommand:
    """A slash command that a person typed."""

    account: Account
    channel: str
    text: str
    """What follows the command, as Slack sent it."""
    name: str = ""
    """Such as /keyturn."""
    trigger_id: str = ""
    """Opens one form, within three seconds."""


@dataclass(frozen=True)
class ButtonClick:
    """A click on a button."""

    account: Account
    channel: str
    ts: str
    """Timestamp of the button's message."""
    action: str
    value: str
    """What Keyturn put into the button."""
    trigger_id: str = ""
    response_url: str = field(default="", repr=False)
    """Replaces the button's message within 30 minutes, even if only one person sees it; "" on
    the Home tab."""
    is_home: bool = False
    """Whether the button is on the person's Home tab, which has neither channel nor ts."""
    is_ephemeral: bool = False
    """Whether only this person sees the button's message."""
    thread: str = ""
    """Timestamp of the first message of the thread that the button is in; "" outside threads."""


@dataclass(frozen=True)
class ViewState:
    """The state of a view when a person acted in it."""

    account: Account
    view_id: str
    view_hash: str
    callback_id: str
    metadata: Mapping[str, str]
    """What Keyturn stored in the view."""
    values: Mapping[str, str]
    """The filled-in values by block; empty fields are absent."""
    block_id: str = ""
    """The block whose options are requested."""
    typed_text: str = ""
    """What was typed to search for options."""


@dataclass(frozen=True)
class MessageShortcut:
    """A click in the menu of a message. text: all text of the message."""

    account: Account
    trigger_id: str
    channel: str
    text: str
    callback_id: str = ""
    ts: str = ""
    """Timestamp of the message."""
    thread: str = ""
    """Timestamp of the first message of its thread; "" outside threads."""
    message: Body = field(default_factory=dict[str, Any], repr=False)
    """The message as Slack sends it."""


@dataclass(frozen=True)
class AppMessage:
    """A message in a channel that another program posted, outside threads."""

    channel: str
    ts: str
    content: Body = field(repr=False)
    """The message as Slack sends it."""


@dataclass(frozen=True)
class Mention:
    """A message that mentions the bot, or that a person writes to it directly."""

    account: Account
    channel: str
    thread: str
    """Timestamp of the thread's first message; "" outside threads."""
    text: str
    ts: str = ""
    """Timestamp of the message."""
    is_direct: bool = False
    """Whether it is in the direct messages between the person and Keyturn."""


@dataclass(frozen=True)
class SharedLinks:
    """A message that contains links to Keyturn's pages."""

    account: Account
    channel: str
    ts: str
    """Timestamp of the message."""
    urls: Sequence[str]


def parse_command(body: Body) -> SlashCommand:
    return SlashCommand(
        parse_account(body),
        _get_text(body, "channel_id"),
        _get_text(body, "text"),
        name=_get_text(body, "command"),
        trigger_id=_get_text(body, "trigger_id"),
    )


def parse_view_state(body: Body) -> ViewState:
    return ViewState(
        account=parse_account(body),
        view_id=_get_text(body, "view", "id"),
        view_hash=_get_text(body, "view", "hash"),
        callback_id=_get_text(body, "view", "callback_id"),
        metadata=_parse_metadata(_get_text(body, "view", "private_metadata")),
        values=_parse_values(
            _get_member(_get_member(_get_member(body, "view"), "state"), "values")
        ),
        block_id=_get_text(body, "block_id"),
        typed_text=_get_text(body, "value"),
    )


def parse_shortcut(body: Body) -> MessageShortcut:
    message = _get_member(body, "message")
    text = "\n".join(_iterate_texts(message))
    return MessageShortcut(
        parse_account(body),
        _get_text(body, "trigger_id"),
        _get_text(body, "channel", "id"),
        text[:_MAX_TEXT_LENGTH],
        _get_text(body, "callback_id"),
        _get_text(body, "message", "ts"),
        _get_text(body, "message", "thread_ts"),
        cast("Body", message) if isinstance(message, dict) else {},
    )


def parse_home_opened(body: Body) -> Account | None:
    """Return the account that opened a tab of the app; None for another event."""
    if _get_text(body, "event", "type") != "app_home_opened":
        return None
    return _parse_event_account(body)


def parse_mention(body: Body) -> Mention | None:
    """Return the message that mentions the bot; None if another bot wrote it."""
    event = body.get("event")
    account, channel = _parse_event_account(body), _get_text(body, "event", "channel")
    if _get_member(event, "bot_id") or not (account.user and channel):
        return None
    text = _get_text(body, "event", "text")[:_MAX_TEXT_LENGTH]
    thread, ts = _get_text(body, "event", "thread_ts"), _get_text(body, "event", "ts")
    return Mention(account, channel, thread, text, ts)


def parse_direct_message(body: Body) -> Mention | None:
    """Return what a person wrote to the bot; None for edits, deletions and messages of bots."""
    event = body.get("event")
    subtype = _get_member(event, "subtype") or ""
    is_written = _get_text(body, "event", "channel_type") == "im" and subtype in _WRITTEN_SUBTYPES
    found = parse_mention(body) if is_written else None
    return replace(found, is_direct=True) if found else None


def parse_app_message(body: Body) -> AppMessage | None:
    """Return what another program posted in a channel; None for people, edits and threads."""
    event = body.get("event")
    channel, ts = _get_text(body, "event", "channel"), _get_text(body, "event", "ts")
    is_by_app = bool(_get_text(body, "event", "bot_id"))
    app = _get_text(body, "event", "app_id")
    is_own = bool(app) and app == _get_text(body, "api_app_id")
    is_new = _get_text(body, "event", "subtype") in _POSTED_SUBTYPES
    in_channel = _get_text(body, "event", "channel_type") in _CHANNEL_TYPES
    in_thread = _get_text(body, "event", "thread_ts") not in {"", ts}
    if not (is_by_app and is_new and in_channel and channel and ts) or is_own or in_thread:
        return None
    return AppMessage(channel, ts, cast("Body", event))


def is_for_no_one(body: Body) -> bool:
    """Return whether a delivery is a message in a channel that nothing here answers."""
    event = body.get("event")
    is_message = _get_text(body, "event", "type") == "message"
    in_channel = _get_text(body, "event", "channel_type") in _CHANNEL_TYPES
    return is_message and in_channel and isinstance(event, dict) and not parse_app_message(body)


def parse_shared_links(body: Body) -> SharedLinks | None:
    """Return the links in a message; None while a person is still writing it."""
    event = body.get("event")
    account, channel = _parse_event_account(body), _get_text(body, "event", "channel")
    ts, links = _get_text(body, "event", "message_ts"), _get_member(event, "links")
    if _get_text(body, "event", "source") == "composer" or not (account.user and channel and ts):
        return None
    given = cast("list[object]", links) if isinstance(links, list) else []
    urls = (_get_member(one, "url") for one in given)
    return SharedLinks(account, channel, ts, [url for url in urls if isinstance(url, str)])


def _parse_event_account(body: Body) -> Account:
    return Account(
        team=_get_text(body, "team_id"),
        user=_get_text(body, "event", "user"),
        enterprise=_get_text(body, "enterprise_id"),
    )


def parse_click(body: Body) -> ButtonClick:
    """Return the button that a person pressed, or chose in a menu."""
    action = _get_first_item(body.get("actions"))
    name, value = _get_text(action, "action_id"), _get_text(action, "value")
    if chosen := _get_text(action, "selected_option", "value"):
        name, _, value = chosen.partition(":")
    return ButtonClick(
        account=parse_account(body),
        channel=_get_text(body, "container", "channel_id"),
        ts=_get_text(body, "container", "message_ts"),
        action=name,
        value=value,
        trigger_id=_get_text(body, "trigger_id"),
        response_url=_get_text(body, "response_url"),
        is_home=_get_text(body, "view", "type") == "home",
        is_ephemeral=_get_member(body.get("container"), "is_ephemeral") is True,
        thread=_get_text(body, "container", "thread_ts"),
    )


def parse_account(body: Body) -> Account:
    """Return the account that a payload is from. Only a button's has the team of its user."""
    if isinstance(body.get("user"), dict):
        return Account(
            team=_get_text(body, "user", "team_id") or _get_text(body, "team", "id"),
            user=_get_text(body, "user", "id"),
            enterprise=_get_text(body, "enterprise", "id"),
        )
    return Account(
        team=_get_text(body, "team_id"),
        user=_get_text(body, "user_id"),
        enterprise=_get_text(body, "enterprise_id"),
    )


def build_deduplication_key(body: Body) -> str:
    """Return a key that is the same when Slack delivers something again; "" if there is none.

    Each delivery has a new signature. The team is not part of the key: on Enterprise Grid it can
    differ between deliveries.
    """
    if body.get("type") == "event_callback":
        return _join_if_complete("event", _get_text(body, "event_id"))
    if body.get("type") == "block_actions":
        action = _get_first_item(body.get("actions"))
        return _join_if_complete(
            "click",
            _get_text(body, "container", "message_ts") or _get_text(body, "container", "view_id"),
            _get_text(action, "action_ts"),
            _get_text(body, "user", "id"),
            _get_text(action, "action_id"),
        )
    return _join_if_complete("trigger", _get_text(body, "trigger_id"))


def _parse_metadata(metadata: str) -> Mapping[str, str]:
    """Parse what Keyturn stored in a view; return {} if it is malformed."""
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return {}
    given = cast("Body", found) if isinstance(found, dict) else {}
    return {key: value for key, value in given.items() if isinstance(value, str)}


def _parse_values(values: object) -> dict[str, str]:
    """Return the value of each block's element, if it has one."""
    found: dict[str, str] = {}
    for block, elements in cast("Body", values if isinstance(values, dict) else {}).items():
        for element in cast("Body", elements if isinstance(elements, dict) else {}).values():
            value = _get_text(element, "value") or _get_text(element, "selected_option", "value")
            at = _get_member(element, "selected_date_time")
            value = str(at) if isinstance(at, int) else value
            if value:
                found[block] = value
    return found


def _iterate_texts(value: object) -> Iterator[str]:
    """Yield every text in a message, its blocks and attachments."""
    if isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _iterate_texts(one)
    elif isinstance(value, dict):
        for name, one in cast("Body", value).items():
            if isinstance(one, str) and name in _TEXT_KEYS:
                yield one
            else:
                yield from _iterate_texts(one)


def _join_if_complete(*parts: str) -> str:
    return " ".join(parts) if all(parts) else ""


def _get_first_item(value: object) -> Body:
    values = cast("list[object]", value) if isinstance(value, list) else []
    return cast("Body", values[0]) if values and isinstance(values[0], dict) else {}


def _get_text(body: Body, *path: str) -> str:
    """Return the text at a path of names; "" if there is none."""
    found: object = body
    for name in path:
        found = _get_member(found, name)
    return found if isinstance(found, str) else ""


def _get_member(value: object, name: str) -> object:
    return cast("Body", value).get(name) if isinstance(value, dict) else None
