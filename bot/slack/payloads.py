"""What Slack tells us, taken out of its payloads: who, where and what. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from bot.slack.request_body import Body

_MOST_SAID = 20_000
# Where messages, attachments and blocks keep what people read.
_TEXTS = frozenset({"text", "fallback", "pretext", "title", "value", "url"})


@dataclass(frozen=True)
class Account:
    """One Slack account by its ids; names and addresses can be changed by whoever has it.

    team: T…, the account's own. enterprise: E… on Enterprise Grid, else "".
    """

    team: str
    user: str
    enterprise: str = ""


@dataclass(frozen=True)
class Command:
    """A slash command. text: what stands behind it, as Slack sent it. name: such as /keyturn.

    trigger: opens one form, within three seconds.
    """

    account: Account
    channel: str
    text: str
    name: str = ""
    trigger: str = ""


@dataclass(frozen=True)
class Click:
    """A button pressed. ts: of the message that it is on. value: what we put into the button.

    home: it is on somebody's own Home tab, where there is neither channel nor ts.
    """

    account: Account
    channel: str
    ts: str
    action: str
    value: str
    trigger: str = ""
    home: bool = False


@dataclass(frozen=True)
class Shown:
    """A view as it was when somebody did something in it. kind: modal or home.

    about: what we kept in it. values: what is filled in, by block; blanks are left out.
    element: the block and what was typed, where options are looked for.
    """

    account: Account
    id: str
    kind: str
    hash: str
    callback: str
    trigger: str
    about: Mapping[str, str]
    values: Mapping[str, str]
    block: str = ""
    typed: str = ""


@dataclass(frozen=True)
class Shortcut:
    """A choice in the menu of a message. text: all that the message says."""

    account: Account
    trigger: str
    channel: str
    text: str


def command(body: Body) -> Command:
    return Command(
        account(body),
        _text(body, "channel_id"),
        _text(body, "text"),
        name=_text(body, "command"),
        trigger=_text(body, "trigger_id"),
    )


def parse_shown(body: Body) -> Shown:
    return Shown(
        account=account(body),
        id=_text(body, "view", "id"),
        kind=_text(body, "view", "type"),
        hash=_text(body, "view", "hash"),
        callback=_text(body, "view", "callback_id"),
        trigger=_text(body, "trigger_id"),
        about=_kept(_text(body, "view", "private_metadata")),
        values=_filled(_member(_member(_member(body, "view"), "state"), "values")),
        block=_text(body, "block_id"),
        typed=_text(body, "value"),
    )


def shortcut(body: Body) -> Shortcut:
    said = "\n".join(_said(_member(body, "message")))
    return Shortcut(
        account(body), _text(body, "trigger_id"), _text(body, "channel", "id"), said[:_MOST_SAID]
    )


def opened_home(body: Body) -> Account | None:
    """Return who has come to the Home tab, None if it is another event."""
    if _text(body, "event", "type") != "app_home_opened" or _text(body, "event", "tab") != "home":
        return None
    return Account(
        team=_text(body, "team_id"),
        user=_text(body, "event", "user"),
        enterprise=_text(body, "enterprise_id"),
    )


def click(body: Body) -> Click:
    action = _first(body.get("actions"))
    return Click(
        account=account(body),
        channel=_text(body, "container", "channel_id"),
        ts=_text(body, "container", "message_ts"),
        action=_text(action, "action_id"),
        value=_text(action, "value"),
        trigger=_text(body, "trigger_id"),
        home=_text(body, "view", "type") == "home",
    )


def account(body: Body) -> Account:
    """Return whose payload it is. A button's tells the team of its user, a command's only one."""
    if isinstance(body.get("user"), dict):
        return Account(
            team=_text(body, "user", "team_id") or _text(body, "team", "id"),
            user=_text(body, "user", "id"),
            enterprise=_text(body, "enterprise", "id"),
        )
    return Account(
        team=_text(body, "team_id"),
        user=_text(body, "user_id"),
        enterprise=_text(body, "enterprise_id"),
    )


def meaning(body: Body) -> str:
    """Return what stays the same when Slack delivers a thing again, newly signed; "" if nothing.

    The team is not part of it: on Enterprise Grid it can differ between deliveries.
    """
    if body.get("type") == "event_callback":
        return _joined("event", _text(body, "event_id"))
    if body.get("type") == "block_actions":
        action = _first(body.get("actions"))
        return _joined(
            "click",
            _text(body, "container", "message_ts") or _text(body, "container", "view_id"),
            _text(action, "action_ts"),
            _text(body, "user", "id"),
            _text(action, "action_id"),
        )
    return _joined("trigger", _text(body, "trigger_id"))


def _kept(metadata: str) -> Mapping[str, str]:
    """Read what we keep in a view; nothing of it if it is not as we write it."""
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return {}
    given = cast("Body", found) if isinstance(found, dict) else {}
    return {key: value for key, value in given.items() if isinstance(value, str)}


def _filled(values: object) -> dict[str, str]:
    """Return the value of each block's one element, where there is one."""
    found: dict[str, str] = {}
    for block, elements in cast("Body", values if isinstance(values, dict) else {}).items():
        for element in cast("Body", elements if isinstance(elements, dict) else {}).values():
            value = _text(element, "value") or _text(element, "selected_option", "value")
            if value:
                found[block] = value
    return found


def _said(value: object) -> Iterator[str]:
    """Yield every text in a message, however deep in its blocks and attachments."""
    if isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _said(one)
    elif isinstance(value, dict):
        for name, one in cast("Body", value).items():
            if isinstance(one, str) and name in _TEXTS:
                yield one
            else:
                yield from _said(one)


def _joined(*parts: str) -> str:
    return " ".join(parts) if all(parts) else ""


def _first(value: object) -> Body:
    values = cast("list[object]", value) if isinstance(value, list) else []
    return cast("Body", values[0]) if values and isinstance(values[0], dict) else {}


def _text(body: Body, *path: str) -> str:
    """Return the text at the end of a path of names; "" where there is none."""
    found: object = body
    for name in path:
        found = _member(found, name)
    return found if isinstance(found, str) else ""


def _member(value: object, name: str) -> object:
    return cast("Body", value).get(name) if isinstance(value, dict) else None
