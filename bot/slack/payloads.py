"""What Slack tells us, taken out of its payloads: who, where and what. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from bot.slack.request_body import Body

_MAX_TEXT_LENGTH = 20_000
# Where messages, attachments and blocks keep what people read.
_TEXT_KEYS = frozenset({"text", "fallback", "pretext", "title", "value", "url"})


@dataclass(frozen=True)
class Account:
    """One Slack account by its ids; names and addresses can be changed by whoever has it.

    team: T…, the account's own. enterprise: E… on Enterprise Grid, else "".
    """

    team: str
    user: str
    enterprise: str = ""


@dataclass(frozen=True)
class SlashCommand:
    """A slash command. text: what stands behind it, as Slack sent it. name: such as /keyturn.

    trigger: opens one form, within three seconds.
    """

    account: Account
    channel: str
    text: str
    name: str = ""
    trigger_id: str = ""


@dataclass(frozen=True)
class ButtonClick:
    """A button pressed. ts: of the message that it is on. value: what we put into the button.

    home: it is on somebody's own Home tab, where there is neither channel nor ts.
    """

    account: Account
    channel: str
    ts: str
    action: str
    value: str
    trigger_id: str = ""
    is_home: bool = False


@dataclass(frozen=True)
class ViewState:
    """A view as it was when somebody did something in it. kind: modal or home.

    about: what we kept in it. values: what is filled in, by block; blanks are left out.
    element: the block and what was typed, where options are looked for.
    """

    account: Account
    view_id: str
    kind: str
    view_hash: str
    callback_id: str
    trigger_id: str
    metadata: Mapping[str, str]
    values: Mapping[str, str]
    block_id: str = ""
    typed_text: str = ""


@dataclass(frozen=True)
class MessageShortcut:
    """A choice in the menu of a message. text: all that the message says."""

    account: Account
    trigger_id: str
    channel: str
    text: str


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
        kind=_get_text(body, "view", "type"),
        view_hash=_get_text(body, "view", "hash"),
        callback_id=_get_text(body, "view", "callback_id"),
        trigger_id=_get_text(body, "trigger_id"),
        metadata=_parse_metadata(_get_text(body, "view", "private_metadata")),
        values=_parse_values(
            _get_member(_get_member(_get_member(body, "view"), "state"), "values")
        ),
        block_id=_get_text(body, "block_id"),
        typed_text=_get_text(body, "value"),
    )


def parse_shortcut(body: Body) -> MessageShortcut:
    said = "\n".join(_iterate_texts(_get_member(body, "message")))
    return MessageShortcut(
        parse_account(body),
        _get_text(body, "trigger_id"),
        _get_text(body, "channel", "id"),
        said[:_MAX_TEXT_LENGTH],
    )


def parse_home_opened(body: Body) -> Account | None:
    """Return who has come to the Home tab, None if it is another event."""
    if (
        _get_text(body, "event", "type") != "app_home_opened"
        or _get_text(body, "event", "tab") != "home"
    ):
        return None
    return Account(
        team=_get_text(body, "team_id"),
        user=_get_text(body, "event", "user"),
        enterprise=_get_text(body, "enterprise_id"),
    )


def parse_click(body: Body) -> ButtonClick:
    action = _get_first_item(body.get("actions"))
    return ButtonClick(
        account=parse_account(body),
        channel=_get_text(body, "container", "channel_id"),
        ts=_get_text(body, "container", "message_ts"),
        action=_get_text(action, "action_id"),
        value=_get_text(action, "value"),
        trigger_id=_get_text(body, "trigger_id"),
        is_home=_get_text(body, "view", "type") == "home",
    )


def parse_account(body: Body) -> Account:
    """Return whose payload it is. A button's tells the team of its user, a command's only one."""
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
    """Return what stays the same when Slack delivers a thing again, newly signed; "" if nothing.

    The team is not part of it: on Enterprise Grid it can differ between deliveries.
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
    """Read what we keep in a view; nothing of it if it is not as we write it."""
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return {}
    given = cast("Body", found) if isinstance(found, dict) else {}
    return {key: value for key, value in given.items() if isinstance(value, str)}


def _parse_values(values: object) -> dict[str, str]:
    """Return the value of each block's one element, where there is one."""
    found: dict[str, str] = {}
    for block, elements in cast("Body", values if isinstance(values, dict) else {}).items():
        for element in cast("Body", elements if isinstance(elements, dict) else {}).values():
            value = _get_text(element, "value") or _get_text(element, "selected_option", "value")
            if value:
                found[block] = value
    return found


def _iterate_texts(value: object) -> Iterator[str]:
    """Yield every text in a message, however deep in its blocks and attachments."""
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
    """Return the text at the end of a path of names; "" where there is none."""
    found: object = body
    for name in path:
        found = _get_member(found, name)
    return found if isinstance(found, str) else ""


def _get_member(value: object, name: str) -> object:
    return cast("Body", value).get(name) if isinstance(value, dict) else None
